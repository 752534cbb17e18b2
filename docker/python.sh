#!/usr/bin/env bash
# Python on a bare Debian, with what its virtual environments need.
set -euo pipefail

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv
rm -rf /var/lib/apt/lists/*
