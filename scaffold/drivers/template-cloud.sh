#!/bin/sh
# The driver of template-cloud, for ccm-cloud and for the cloud-controller-manager.
#
# Each operation is a process of its own: one request on standard input, one answer on standard output, both JSON. The page
# "The protocol of external drivers" of ccm-operator has all operations with their fields.
#
# Until it is changed, its cloud is a file, the setting `file`, so it works as it is. Replace the functions between the two lines
# "The cloud" and "The protocol" one by one with calls of your cloud, and run `ccm-cloud ... verify` after each.
#
# It needs a POSIX shell, jq 1.5 or newer, and flock of util-linux or BusyBox. What it calls is not a part of its digest.
set -eu
umask 077

name=template-cloud
account= # The id of the account that answers, once the cloud has named it.

# Ends with a result, which is JSON. An empty text, the output of a jq that has failed, becomes no answer: the class Internal.
succeed() {
    printf '%s' "$1" |
        jq -c --arg account "$account" '{protocolVersion: 1, result: .} + if $account == "" then {} else {account: $account} end'
    exit 0
}

# Ends with an error: its class, its message, and further fields as pairs of a name and a text, such as field, id or instance.
fail() {
    jq -cn --arg account "$account" --arg class "$1" --arg message "$2" --arg name "${3-}" --arg value "${4-}" '
        {protocolVersion: 1, error: ({class: $class, message: $message} + if $name == "" then {} else {($name): $value} end)}
        + if $account == "" then {} else {account: $account} end'
    exit 0
}

# ---------------------------------------------------------------- The cloud

# Each setting is a flag and a variable: file is --file and TEMPLATE_CLOUD_FILE. A secret one is in no output and no log. With a
# real cloud, token is required and has no default. The settings image and instanceType are for instance-create only: what is gone
# must not prevent that instances are deleted. Leave out the capabilities that the cloud does not have.
describe() {
    succeed "$(jq -n --arg name "$name" '{
        name: $name, version: "0.1.0", summary: "Instances of \($name).", options: [], idPrefix: "\($name)/",
        settings: [
            {name: "file", type: "path", required: true, help: "The whole path of the file that is the cloud."},
            {name: "token", type: "text", default: "change-me", secret: true, help: "The token of the account."},
            {name: "image", type: "text", default: "debian", help: "The image of instances for which none is given."},
            {name: "instanceType", type: "text", default: "small", help: "Their instance type."}
        ],
        capabilities: {instances: {readOnly: false, emulated: false}, topology: {readOnly: false, emulated: true}}
    }')"
}

# Reads the file with a program of jq, or changes it. Both have the arguments of the request as $arguments.
cloud() { jq --argjson arguments "$arguments" "$@" "$file"; }
change() {
    cloud "$@" >"$file.new"
    mv "$file.new" "$file"
}

# Connects with the settings, and learns whose credentials they are. With wrong ones everything is InvalidCredentials, and never
# NotFound or an empty list. A client of a real cloud has to heed what is in .context: timeoutSeconds, proxy, noProxy, caBundle.
# Never give a secret to a program as an argument, which every process can read: curl takes headers from its standard input with
# --header @-, and jq a value from a file with --rawfile.
log_in() {
    texts "$request" file .settings.file token .settings.token
    case $file in /*) ;; *) fail InvalidArgument "$file is no whole path: it has to begin with /" field file ;; esac
    [ -d "${file%/*}/" ] || fail InvalidArgument "${file%/*} is no folder" field file
    # Several operations may run at once. The lock ends with the process.
    exec 9>"$file.lock"
    flock 9
    if [ ! -e "$file" ]; then
        jq -n --arg id "a-$(random)" '{account: {id: $id, token: "change-me"}, next: 1, instances: []}' >"$file.new"
        mv "$file.new" "$file"
    fi
    texts "$(cat "$file")" right .account.token id .account.id
    [ "$token" = "$right" ] || fail InvalidCredentials "the token is wrong"
    account=$id
}

account_show() { succeed "$(cloud '{id: .account.id, name: "the file", subAccounts: []}')"; }

verify_settings() {
    texts "$request" image .settings.image type .settings.instanceType
    exists image "$image" "debian fedora"
    exists instanceType "$type" "small large"
    succeed '{}'
}

# Fails unless a value is one of several words.
exists() {
    for word in $3; do
        [ "$word" != "$2" ] || return 0
    done
    fail InvalidArgument "there is no $1 $2" field "$1"
}

# Fails if the region or the zone of the arguments does not exist: an empty list would look as if all instances were gone.
check_place() {
    texts "$arguments" region .region zone .zone
    exists region "${region:-north}" north
    exists zone "${zone:-north-1}" north-1
}

region_list() { succeed '{"regions": [{"id": "north", "name": "North"}]}'; }

zone_list() {
    check_place
    succeed '{"zones": [{"id": "north-1", "name": "North 1", "region": "north"}]}'
}

# All instances that fit, also those that others have made. If a page of the list is missing, it has to fail.
instance_list() {
    check_place
    succeed "$(cloud '{instances: [.instances[]
        | . as $one
        | select(all($arguments | {name, owner} | to_entries[]; .value == null or .value == $one[.key]))
        | select(all($arguments.labels // {} | to_entries[]; .value == $one.labels[.key]))
        | del(.digest)]}')"
}

# NotFound is the only error that may lead to a deletion: the right account was asked, and does not have it.
instance_show() {
    texts "$arguments" by 'keys | join(" ")' id '.id // .providerID'
    case $by:$id in
    # The Node of another cloud is not one whose instance is gone.
    id:* | providerID:"$name://"*) ;;
    providerID:*) fail InvalidArgument "$id is not of this driver: it has to begin with $name://" field providerID ;;
    *) fail InvalidArgument "either id or providerID is needed" field arguments ;;
    esac
    found=$(cloud -c --arg by "$by" '[.instances[] | select(.[$by] == $arguments[$by]) | del(.digest)]')
    [ "$found" != '[]' ] || fail NotFound "there is no instance $id" id "$id"
    succeed "$(printf '%s' "$found" | jq '{instance: .[0]}')"
}

# Makes one instance for a key. The same key and digest again return it; it may be repeated after any failure.
instance_create() {
    texts "$arguments" key .key called .name image .image type .instanceType
    [ -n "$key" ] || fail InvalidArgument "it is empty" field key
    [ -n "$called" ] || fail InvalidArgument "it is empty" field name
    printf '%s' "$arguments" | jq -e '.labels // {} | all(keys[]; startswith("ccm-operator.dev/") | not)' >/dev/null ||
        fail InvalidArgument "labels that begin with ccm-operator.dev/ are the driver's own" field labels
    printf '%s' "$arguments" | jq -e '(.options // {}) == {}' >/dev/null ||
        fail InvalidArgument "there are no options" field options
    printf '%s' "$arguments" | jq -e '(.networks // []) == []' >/dev/null ||
        fail InvalidArgument "there are no networks" field networks

    # If a real cloud needs several requests, and one of them failed the last time, go on here.
    found=$(cloud -c '[.instances[] | select(.owner == $arguments.key and .digest == $arguments.digest) | del(.digest)]')
    [ "$found" = '[]' ] || succeed "$(printf '%s' "$found" | jq '{instance: .[0]}')"
    cloud -e 'any(.instances[]; .owner == $arguments.key or .name == $arguments.name)' >/dev/null &&
        fail AlreadyExists "there is an instance with this key or the name $called"

    check_place
    texts "$request" default_image .settings.image default_type .settings.instanceType
    image=${image:-$default_image} type=${type:-$default_type}
    exists image "$image" "debian fedora"
    exists instanceType "$type" "small large"
    # What the instance reads at its first start is: printf '%s' "$request" | jq -r '.arguments.userData // ""' | base64 -d. Give it
    # to the cloud, and write it nowhere. A real cloud keeps owner, cluster and digest with the instance, as the tags
    # ccm-operator.dev/owner, /cluster and /spec. The same request that makes the instance has to set them: what has no owner is
    # never deleted. A call that fails after something was made: fail Unavailable "..." instance "$id", so that it is not lost.
    id=i-$(random)
    change --arg id "$id" --arg name "$name" --arg image "$image" --arg type "$type" --arg now "$(date -u +%Y-%m-%dT%H:%M:%SZ)" '
        .instances += [{
            id: $id, providerID: "\($name)://\($id)", name: $arguments.name, region: "north", zone: "north-1", state: "running",
            image: $image, instanceType: $type, labels: ($arguments.labels // {}), created: $now,
            addresses: [
                {type: "Hostname", address: $arguments.name},
                {type: "InternalIP", address: "10.0.\(.next / 250 % 250 | floor).\(.next % 250 + 1)"}
            ],
            owner: $arguments.key, digest: $arguments.digest
        } + if ($arguments.cluster // "") == "" then {} else {cluster: $arguments.cluster} end] | .next += 1'
    succeed "$(cloud --arg id "$id" '{instance: (.instances[] | select(.id == $id) | del(.digest))}')"
}

# Fails if others have made the instance. Returns 1 if it is gone.
owned() {
    texts "$arguments" id .id
    found=$(cloud -r '[.instances[] | select(.id == $arguments.id) | if has("owner") then "own" else "foreign" end][0] // "gone"')
    [ "$found" != foreign ] || fail Forbidden "others have made the instance $id"
    [ "$found" != gone ]
}

# Deletes an instance and what was made with it. One that is gone is a success.
instance_delete() {
    if owned; then change '.instances |= map(select(.id != $arguments.id))'; fi
    succeed '{}'
}

# Changes the state. A stopped instance exists: instance-show has it, with the state stopped.
set_state() {
    owned || fail NotFound "there is no instance $id" id "$id"
    change --arg state "$1" '.instances |= map(if .id == $arguments.id then .state = $state else . end)'
    succeed '{}'
}

instance_start() { set_state running; }
instance_stop() { set_state stopped; }

# ---------------------------------------------------------------- The protocol

random() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# Sets variables of the shell to texts of one JSON value: pairs of a name and a path of jq. Missing ones are empty. One jq reads
# them all, because each is a process; @sh quotes them.
texts() {
    json=$1 program='""'
    shift
    while [ "$#" -gt 0 ]; do
        program="$program + @sh \" $1=\\($2 // \"\" | tostring)\""
        shift 2
    done
    assignments=$(printf '%s' "$json" | jq -rs "if length == 1 then .[0] | $program else error(\"this is not one value\") end") || exit 1
    eval "$assignments"
}

request=$(cat)
# What is no object is no request, and ends with jq: the class Internal.
texts "$request" kind type version '.protocolVersion | tojson' operation .operation wanted .context.accountID \
    read_only .context.readOnly
[ "$kind" = object ] || exit 1
[ "$version" = 1 ] || fail NotSupported "this driver has version 1 of the protocol only"
needed='[]' others='[]' changes=
case $operation in
describe | endpoint | account-show | verify-settings | region-list) ;;
zone-list) others='["region"]' ;;
instance-list) others='["region", "zone", "name", "owner", "labels"]' ;;
instance-show) others='["id", "providerID"]' ;;
instance-create)
    needed='["key", "name", "digest"]' changes=yes
    others='["cluster", "region", "zone", "image", "instanceType", "userData", "networks", "labels", "options"]'
    ;;
instance-delete | instance-start | instance-stop) needed='["id"]' changes=yes ;;
*) fail NotSupported "there is no operation $operation" ;;
esac

# A field that is not understood may change the meaning of a request. Without user data, which may be longer than an argument of a
# program may be, the arguments are kept for cloud.
texts "$request" wrong '[
        (keys - ["protocolVersion", "operation", "context", "settings", "arguments"])[],
        (.context // {} | keys - ["accountID", "timeoutSeconds", "readOnly", "proxy", "noProxy", "caBundle"])[],
        (.settings // {} | keys - ["file", "token", "image", "instanceType"])[],
        (.arguments // {} | keys - '"$needed - $others"')[]
    ][0]' missing "$needed - (.arguments // {} | keys) | .[0]" arguments '.arguments // {} | del(.userData) | tojson'
[ -z "$wrong" ] || fail InvalidArgument "the request has a field $wrong, which this driver does not know" field "$wrong"
[ -z "$missing" ] || fail InvalidArgument "$operation needs it" field "$missing"

case $operation in
describe) describe ;;
# With a real cloud, the place that it connects to. Some checks put a proxy in between, and cannot run without it.
endpoint) fail NotSupported "a file has no endpoint" ;;
esac

log_in
[ -z "$wanted" ] || [ "$wanted" = "$account" ] ||
    fail InvalidCredentials "the token is of the account $account, not of $wanted"
[ -z "$changes" ] || [ "$read_only" != true ] || fail ReadOnly "the setting readOnly is true"
"$(printf %s "$operation" | tr - _)"
