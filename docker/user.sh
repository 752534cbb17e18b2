#!/usr/bin/env bash
# Prepares the image for USER 1000:0: a home, what SGLang's image has cached for root, and the one
# place in the packages that a running server writes to.
set -euo pipefail

home=/home/sglang
getent passwd 1000 >/dev/null || useradd --uid 1000 --gid 0 --no-create-home --home-dir "$home" sglang
mkdir -p "$home/.cache/huggingface"
if [[ -d /root/.cache/sglang ]]; then
    cp -R /root/.cache/sglang "$home/.cache/"
fi
chown -R 1000:0 "$home"
# Group 0 may write as well, for clusters that choose a user id of their own.
chmod -R g=u "$home"

# FlashInfer links kernels into its own package when it first uses them.
cubins=$(python3 -c '
from importlib.util import find_spec
found = find_spec("flashinfer_cubin")
print(found.submodule_search_locations[0] if found else "")')/cubins
if [[ -d $cubins ]]; then
    find "$cubins" -type d -exec chmod g+w {} +
fi
