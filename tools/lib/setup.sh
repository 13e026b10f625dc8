# Sourced by tools/serve, tools/test and tools/gpu-check: Debian packages, the default model, builds.
# Everything is said on stderr; nothing is downloaded or built twice.

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '%s\n' "troupe: $*" >&2; }
die() { say "$*"; exit 1; }

build_packages=(
    g++ cmake ninja-build pkg-config
    libboost1.81-dev libboost-json1.81-dev libsimdjson-dev libcli11-dev libspdlog-dev libfmt-dev
    prometheus-cpp-dev libpcre2-dev libsqlite3-dev libssl-dev catch2
    libjs-marked node-dompurify libjs-highlight.js libjs-katex fonts-katex
    python3 python3-pip python3-venv ca-certificates
)
# ccache only makes rebuilds quicker; a browser is for the page's test; fibers for the emulated CUDA
# card.
test_packages=(ccache chromium chromium-driver curl openssl libboost-context1.81-dev)
fuzz_packages=(clang libclang-rt-14-dev llvm)
# A compiler for 64-bit ARM, and an emulator for what it makes.
arm64_packages=(g++-aarch64-linux-gnu qemu-user-static)
# Servers, which their packages may start: only the whole run wants them.
proxy_packages=(nginx-light haproxy)

# need_packages NAME...: installs those that are missing; without root, says the one line to run.
need_packages() {
    local missing=() name
    for name in "$@"; do
        dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null | grep -q '^installed$' ||
            missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return
    local line="apt-get install -y --no-install-recommends ${missing[*]}"
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
            as_root=(sudo)
        else
            die "these packages are missing; run this once as root, then start again:
    apt-get update && $line"
        fi
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq >&2 || die "apt-get update failed; is the network there?"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" $line -qq >&2 ||
        die "could not install the packages; the line was: $line"
}

# fetch_model PROGRAM: the default model into the cache, by a `troupe` that is built; leaves its path
# in $model_path.
fetch_model() {
    model_path=$("$1" pull SmolLM2-135M-Instruct) || exit
}

# build PRESET TARGET...: configures where needed, builds, is quiet when all goes well.
build() {
    local preset=$1
    shift
    local log=$root_dir/build/$preset.log
    mkdir -p "$root_dir/build"
    if [ ! -f "$root_dir/build/$preset/build.ninja" ]; then
        say "configuring ($preset)"
        (cd "$root_dir" && cmake --preset "$preset") >"$log" 2>&1 ||
            { cat "$log" >&2; die "could not configure"; }
    fi
    (cd "$root_dir" && cmake --build --preset "$preset" --target "$@") >"$log" 2>&1 ||
        { grep -vE '^\[[0-9]+/[0-9]+\]' "$log" | head -80 >&2; die "the build failed; all of it is in build/$preset.log"; }
}
