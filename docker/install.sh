#!/usr/bin/env bash
# Installs the wheel in FOLDER beside the SGLang that is there. Nothing but sglang-specv2 and, where
# it is missing, nvidia-ml-py may be new, and nothing that was there may change.
#
#     docker/install.sh FOLDER
set -euo pipefail

folder=${1:?usage: install.sh FOLDER, where the wheel lies}
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

installed() {
    "$python" -m pip list --format=freeze | sort
}

before=$(installed)
"$python" -m pip install --quiet --no-deps "$folder"/sglang_specv2-*.whl
if ! "$python" -c 'import pynvml' 2>/dev/null; then
    "$python" -m pip install --quiet --no-deps nvidia-ml-py
fi
after=$(installed)

changes=$(diff <(echo "$before") <(echo "$after") \
    | grep -E '^[<>]' | grep -Ev '^> (sglang[-_]specv2|nvidia-ml-py)==' || true)
if [[ -n $changes ]]; then
    printf 'install.sh: expected every package as it was (<), found (>)\n%s\n' "$changes" >&2
    exit 1
fi
grep -E '^(sglang|torch)==' <<<"$after" | sed 's/^/install.sh: unchanged: /'
