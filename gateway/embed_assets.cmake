# Writes assets_table.hpp: every file of WEB, every line "SOURCE NAME" of VENDOR, and DESCRIPTION,
# embedded with the assembler's .incbin so that compiling stays quick.
# Run as: cmake -DWEB= -DVENDOR= -DDESCRIPTION= -DOUT= -P this.
cmake_policy(SET CMP0057 NEW)
file(GLOB_RECURSE files RELATIVE ${WEB} ${WEB}/*)
list(REMOVE_ITEM files vendor.txt)
set(entries "")
foreach(file ${files})
    list(APPEND entries "${file}|${WEB}/${file}")
endforeach()
if(EXISTS ${VENDOR})
    file(STRINGS ${VENDOR} lines)
    foreach(line ${lines})
        if(line MATCHES "^[ \t]*(#|$)")
            continue()
        endif()
        string(REGEX MATCH "^([^ \t]+)[ \t]+([^ \t]+)$" _ "${line}")
        if(NOT CMAKE_MATCH_1 OR NOT EXISTS ${CMAKE_MATCH_1})
            message(FATAL_ERROR "gateway/web/vendor.txt: there is no file for the line \"${line}\"; "
                                "tools/serve installs the packages that bring them")
        endif()
        list(APPEND entries "vendor/${CMAKE_MATCH_2}|${CMAKE_MATCH_1}")
    endforeach()
endif()
list(APPEND entries "openapi.json|${DESCRIPTION}")
list(SORT entries COMPARE STRING)

set(text "// Written by embed_assets.cmake.\n#pragma once\n\n#include <string_view>\n\n")
set(table "")
set(n 0)
foreach(entry ${entries})
    string(REPLACE "|" ";" pair "${entry}")
    list(GET pair 0 name)
    list(GET pair 1 source)
    file(SHA256 ${source} digest)
    string(SUBSTRING ${digest} 0 32 digest)
    string(APPEND text "asm(\".section .rodata\\n.global troupe_asset_${n}\\ntroupe_asset_${n}:\\n\"\n"
        "    \".incbin \\\"${source}\\\"\\n.global troupe_asset_${n}_end\\n\"\n"
        "    \"troupe_asset_${n}_end:\\n.byte 0\\n.text\\n\");\n"
        "extern \"C\" const char troupe_asset_${n}[], troupe_asset_${n}_end[];\n")
    string(APPEND table
        "    {\"${name}\", \"\\\"${digest}\\\"\", troupe_asset_${n}, troupe_asset_${n}_end},\n")
    math(EXPR n "${n} + 1")
endforeach()
string(APPEND text "\nnamespace troupe::gateway {\n\nstruct EmbeddedFile {\n    std::string_view name;\n"
    "    std::string_view etag;\n    const char* begin;\n    const char* end;\n};\n\n"
    "inline const EmbeddedFile kEmbeddedFiles[] = {\n${table}};\n\n}  // namespace troupe::gateway\n")
file(WRITE ${OUT} "${text}")
