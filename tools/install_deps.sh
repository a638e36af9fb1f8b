#!/usr/bin/env bash
# Installs the Debian 12 packages that the build and the tests need, only those that are missing.
# Does nothing, and needs neither network nor root, when all are there.
set -euo pipefail

packages=(
  g++ clang libclang-rt-14-dev cmake ninja-build ccache pkg-config
  libfmt-dev libboost-dev nlohmann-json3-dev libcli11-dev doctest-dev libxxhash-dev
  libre2-dev librandom123-dev liblzma-dev libtomlplusplus-dev
  libzip-dev zlib1g-dev libhdf5-dev
  # Filter plug-ins of HDF5, of which tests read files.
  hdf5-filter-plugin hdf5-filter-plugin-blosc-serial
  valgrind  # tests/cli/memcheck.sh
  g++-aarch64-linux-gnu  # tests/aarch64.sh
)

if ! command -v dpkg-query >/dev/null; then
  echo "install_deps: this is no Debian system; install what matches these packages by hand:" >&2
  echo "  ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps: needs root or sudo to install: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "install_deps: installing ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
