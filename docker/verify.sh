#!/usr/bin/env bash
# Fails unless what is installed would serve on a machine with a GPU.
#
#     docker/verify.sh [VERSION]     VERSION: what the image's label says; "unknown" is not compared
set -euo pipefail

version=${1:-unknown}
read -r _ installed _ <<<"$(sglang-specv2 --version | tr -d ,)"
if [[ $version != unknown && $version != "$installed" ]]; then
    echo "verify.sh: expected sglang-specv2 $version, as the label says, found $installed" >&2
    exit 1
fi
sglang-specv2 doctor --no-gpu
