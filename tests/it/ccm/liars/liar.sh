#!/bin/sh
# A driver whose answers depend on the file FOLDER/mode. It has the instance b and, if it is honest, the instance a.
mode=$(cat FOLDER/mode)
request=$(cat)
operation=$(printf %s "$request" | sed -n 's/.*"operation":"\([a-z-]*\)".*/\1/p')
wanted=$(printf %s "$request" | sed -n 's/.*"providerID":"\([^"]*\)".*/\1/p')
echo "$mode $operation" >>FOLDER/calls

instance() {
	printf '{"id":"%s","providerID":"liar:///%s","name":"%s","region":"r","zone":"z","state":"running","image":"",' "$1" "$1" "$2"
	printf '"instanceType":"t","addresses":[{"type":"InternalIP","address":"10.1.0.2"}],"labels":{},"created":""}'
}
result() {
	printf '{"protocolVersion":1,"account":"%s","result":%s}' "${account:-first}" "$1"
}
# Without its own opening and closing, so that modes can add or leave out fields.
not_found() {
	printf '{"protocolVersion":%s,"account":"%s","error":{"class":"NotFound","message":"gone"%s}}' \
		"${version:-1}" "${account:-first}" "$1"
}
show() {
	case $mode in
	other-instance) result "{\"instance\":$(instance b bystander)}" ;;
	other-version) version=2 not_found ",\"id\":\"$wanted\"" ;;
	other-account) account=second not_found ",\"id\":\"$wanted\"" ;;
	other-id) not_found ',"id":"liar:///b"' ;;
	no-id) not_found '' ;;
	two-answers) not_found ",\"id\":\"$wanted\"" && not_found ",\"id\":\"$wanted\"" ;;
	exit-status) not_found ",\"id\":\"$wanted\"" && exit 1 ;;
	cut-off) not_found ",\"id\":\"$wanted\"" | head -c 60 ;;
	contradiction | no-list | gone) not_found ",\"id\":\"$wanted\"" ;;
	*) result "{\"instance\":$(instance a kept)}" ;;
	esac
}
list() {
	case $mode in
	honest | contradiction) result "{\"instances\":[$(instance a kept),$(instance b bystander)]}" ;;
	no-list) printf '{"protocolVersion":1,"error":{"class":"Unavailable","message":"later"}}' ;;
	*) result "{\"instances\":[$(instance b bystander)]}" ;;
	esac
}

case $operation,$mode in
describe,*)
	printf '{"protocolVersion":1,"result":{"name":"liar","version":"1","summary":"It lies.","settings":[],"options":[],'
	printf '"capabilities":{"instances":{"readOnly":true,"emulated":false}},"idPrefix":"liar/"}}'
	;;
instance-*,hangs) exec sleep MARKER ;;
instance-*,forks)
	for _ in 1 2 3; do
		setsid sh -c 'sleep MARKER & sleep MARKER' &
	done
	exec sleep MARKER
	;;
instance-*,floods) exec yes 'flood' ;;
account-show,*) result '{"id":"first","name":"liar","subAccounts":[]}' ;;
instance-show,*) show ;;
instance-list,*) list ;;
*) printf '{"protocolVersion":1,"error":{"class":"NotSupported","message":"no %s"}}' "$operation" ;;
esac
