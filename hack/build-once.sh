# shellcheck shell=sh
# Sourced by the build.sh in the folders beside it: the Go programs that the tests need are built once into a cache
# folder outside the checkout, keyed by a hash of the sources, and found there ever after.

need_go() { # folder, what it builds
	command -v go >/dev/null 2>&1 && return
	echo "$1: the Go toolchain is missing: install Go 1.26 or newer (https://go.dev/doc/install), it builds $2" >&2
	exit 1
}

# The key of these sources; how they are built, which is written here, is part of it.
key_of() {
	cat "$@" ../build-once.sh | sha256sum | cut -c1-16
}

# Prints the cache folder; fills it first by calling the function `build_into` with a folder, if it is not there.
build_once() { # folder, what it builds, key, a program that must be there, what is being built and how long it takes
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/${1#hack/}
	out=$cache/$3
	if [ ! -x "$out/$4" ]; then
		need_go "$1" "$2"
		mkdir -p "$cache"
		# Another process may be building the same: it is waited for, and its result is used.
		exec 8>"$cache/.lock"
		flock 8
		if [ -x "$out/$4" ]; then
			echo "$out"
			return
		fi
		echo "$1: building $5 ..." >&2
		tmp=$(mktemp -d "$cache/.build-XXXXXX")
		trap 'rm -rf "$tmp"' EXIT
		build_into "$tmp"
		# A rename is atomic: two builds at once both end well, and a broken one leaves nothing that looks whole.
		chmod 755 "$tmp"
		mv -T "$tmp" "$out" 2>/dev/null || [ -x "$out/$4" ]
		echo "$1: built $out" >&2
	fi
	echo "$out"
}

# `go build` as all of them do it: from the module cache by go.sum, without a path or symbols of this machine.
go_build() { # output, linker flags, packages
	output=$1
	flags=$2
	shift 2
	CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w $flags" -o "$output" "$@"
}
