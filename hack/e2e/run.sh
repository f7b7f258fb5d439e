#!/bin/sh
# Runs a program, such as the binary of tests/e2e, in network, mount and process namespaces of its own with a Docker Engine
# in them: `run.sh PROGRAM [ARGUMENT…]`. Cargo calls it, see `make e2e`. The engine is unpacked from Debian's packages; nothing
# is installed. Outside CI an engine that DOCKER_HOST names is used instead, in its own namespaces.
#
# Nothing is left behind. The namespaces end with their first process, which the kernel kills with the processes outside
# that wait for it: no container, engine, mount or interface outlives a run, however it ends. What a killed run leaves is a
# folder and empty cgroups, which the next run removes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

fail() { echo "hack/e2e/run.sh: $*" >&2; exit 1; }

if [ -n "${DOCKER_HOST:-}" ] && [ -z "${CI:-}" ]; then
	command -v docker >/dev/null || fail "DOCKER_HOST is set, and docker is missing"
	export CCM_OPERATOR_E2E=1
	exec "$@"
fi
[ "$(id -u)" = 0 ] || fail "only root can make the namespaces of the end-to-end tests: run this as root, or set DOCKER_HOST"
for tool in unshare setpriv flock; do
	command -v "$tool" >/dev/null || fail "$tool is missing: install util-linux"
done
command -v openssl >/dev/null || fail "openssl is missing: install it"

# All that the network is needed for comes before the namespaces.
engine=$("$here/../debian.sh" docker.io containerd runc busybox-static libdevmapper1.02.1)
"$here/base.sh" >/dev/null
"$here/node.sh" >/dev/null
"$here/moto.sh" >/dev/null
"$here/python.sh" >/dev/null
"$here/../containerd/build.sh" >/dev/null

# A run holds the lock of its folder as long as any of its processes lives.
runs=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/e2e/runs
mkdir -p "$runs"

remove_run() { # its folder
	name=${1##*/}
	find /sys/fs/cgroup -depth -type d -path "*/ccm-operator-e2e-$name*" -exec rmdir {} + || true
	rm -rf "$1" "$1.lock"
}

exec 8>"$runs/.lock"
flock 8
for lock in "$runs"/*.lock; do
	[ -e "$lock" ] || continue
	# Another run may have removed its own just now.
	command exec 7<"$lock" || continue
	if flock --nonblock 7; then remove_run "${lock%.lock}"; fi
	exec 7<&-
done
run=$(mktemp -d "$runs/XXXXXX")
exec 9>"$run.lock"
flock 9
exec 8>&-

pid=
clean_up() {
	trap - EXIT
	trap '' INT TERM HUP
	[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
	# Once the last process of the namespaces has ended.
	exec 9>&-
	flock "$run.lock" true
	remove_run "$run"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Killed with this script, and with it everything in the namespaces.
setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child --mount-proc \
	"$here/inside.sh" "$engine" "$run" "$@" &
pid=$!
status=0
wait "$pid" || status=$?
pid=
exit "$status"
