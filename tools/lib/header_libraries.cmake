# For TROUPE_CPU_ALONE: stand-ins for the libraries of which headers are enough, since those are
# there whatever the processor. What needs more, a library's own code, is left out.
foreach(name Boost::headers spdlog::spdlog fmt::fmt simdjson::simdjson PkgConfig::PCRE2
             Catch2::Catch2)
    add_library(${name} INTERFACE IMPORTED)
endforeach()
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL)

file(CONFIGURE OUTPUT boost_json.cpp CONTENT "#include <boost/json/src.hpp>\n")
add_library(boost_json STATIC ${CMAKE_CURRENT_BINARY_DIR}/boost_json.cpp)
add_library(Boost::json ALIAS boost_json)
