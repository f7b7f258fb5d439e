#!/usr/bin/python3 -I
"""A driver of ccm-cloud for libvirt: instances are machines of QEMU on one host.

It needs Python 3.9 or newer with libvirt's module (Debian: python3-libvirt). docs/drivers/libvirt.md describes its settings, and
docs/drivers/protocol.md the protocol. Its license is that of the project.

An instance is a domain and two volumes: an overlay of the base volume, and a disk with its user data for cloud-init (NoCloud).
The domain is defined first. Its name is unique on a host, so defining it is what makes one of several creates the first. What
belongs to an instance follows from the domain's UUID, and its key, digest and labels are in the domain's metadata. A create that
was interrupted is therefore finished by the same create, and everything is found by a delete.
"""

import base64
import json
import re
import struct
import sys
import time
import traceback
import uuid
import xml.etree.ElementTree as ET
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, Callable, Iterator, Optional
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape, quoteattr

try:
    import libvirt
except ImportError as problem:
    advice = f"install it for {sys.executable} (Debian: python3-libvirt), or put a Python that has it into the driver's first line"
    json.dump({"protocolVersion": 1, "error": {"class": "Internal", "message": f"{problem}: {advice}"}}, sys.stdout)
    sys.exit()

VERSION = "1.0.0"
# libvirt has neither regions nor zones: the host is one of each.
REGION, ZONE = "default", "default-a"
# Namespace and prefix of what the driver keeps in the metadata of a domain, as JSON.
NAMESPACE, PREFIX = "https://ccm-operator.dev/libvirt/1", "ccm"
MARKS = "ccm-operator.dev/"
SOCKET = "/var/run/libvirt/libvirt-sock"
# How libvirt is reached. Its transport "ext" is left out: it is a program that the URI names.
SCHEMES = {"qemu", "qemu+unix", "qemu+ssh", "qemu+libssh", "qemu+libssh2", "qemu+tls", "qemu+tcp"}
DELETED = "the instance was deleted while it was being made: create it again"
# How long another create of the same instance may go on before this one finishes it.
OTHER_CREATE_SECONDS = 5
# How long a guest may take to shut down before it is powered off.
SHUTDOWN_SECONDS = 10

SETTINGS = [
    {
        "name": "uri", "type": "text", "required": True,
        "help": "The URI of libvirt's system daemon for QEMU, such as qemu:///system or qemu+ssh://root@HOST/system.",
    },
    {"name": "net", "type": "text", "default": "default", "help": "The network of instances that are created without one."},
    {"name": "pool", "type": "text", "default": "default", "help": "The storage pool of base volumes, and of new instances."},
    {
        "name": "volName", "type": "text", "default": "podvm-base.qcow2",
        "help": "The base volume of instances that are created without an image.",
    },
]
OPTIONS = [
    {"name": "cpus", "type": "integer", "default": "2", "help": "The number of virtual processors."},
    {"name": "memory", "type": "integer", "default": "2048", "help": "The memory in MiB."},
    {
        "name": "cpuModel", "type": "text", "default": "host-model",
        "help": "The model of the processors: host-model, host-passthrough, or one of QEMU such as Nehalem. Without KVM it is QEMU's.",
    },
]
DESCRIPTION = {
    "name": "libvirt",
    "version": VERSION,
    "summary": "Instances are machines of QEMU on a host with libvirt.",
    "settings": SETTINGS,
    "options": OPTIONS,
    "capabilities": {
        "account": {"readOnly": False, "emulated": False},
        "topology": {"readOnly": True, "emulated": True},
        "instances": {"readOnly": False, "emulated": False},
        "networks": {"readOnly": True, "emulated": False},
        "hosts": {"readOnly": True, "emulated": False},
        "storages": {"readOnly": True, "emulated": False},
        "images": {"readOnly": True, "emulated": False},
        "metrics": {"readOnly": True, "emulated": False},
    },
    "idPrefix": "libvirt/",
}


# --- The protocol -----------------------------------------------------------------------------------------------------------


class Failure(Exception):
    """An error of the contract: its class, its message, and the further fields of the answer."""

    def __init__(self, kind: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.answer = {"class": kind, "message": message, **more}


def invalid(field: str, message: str) -> Failure:
    return Failure("InvalidArgument", message, field=field)


def not_found(what: str, asked: str) -> Failure:
    """The cloud does not have what was asked for. The caller believes it only with the whole text that it has asked for."""
    return Failure("NotFound", f"there is no {what} {asked!r}", id=asked)


def fields(value: Any, allowed: set[str], what: str) -> dict[str, Any]:
    """Returns an object of the request that has none but these fields: an unknown one may change what the request means."""
    if not isinstance(value, dict):
        raise invalid(what, f"{what} is not an object")
    for name in value:
        if name not in allowed:
            raise invalid(name, f"{what} has the unknown field {name!r}: this driver reads version 1 of the protocol")
    return value


def answer_to(text: bytes) -> dict[str, Any]:
    """Returns the answer to a request."""
    answer: dict[str, Any] = {"protocolVersion": 1}
    try:
        try:
            request = json.loads(text)
        except ValueError as error:
            raise invalid("request", f"the request is not JSON: {error}") from None
        fields(request, {"protocolVersion", "operation", "context", "settings", "arguments"}, "the request")
        if request.get("protocolVersion") != 1:
            raise Failure("NotSupported", "this driver speaks version 1 of the protocol")
        operation = OPERATIONS.get(request.get("operation"))
        if operation is None:
            raise Failure("NotSupported", f"this driver has no operation {request.get('operation')!r}")
        perform, allowed = operation
        arguments = fields(request.get("arguments", {}), allowed, "arguments")
        settings = fields(request.get("settings", {}), {setting["name"] for setting in SETTINGS}, "settings")
        names = {"accountID", "timeoutSeconds", "readOnly", "proxy", "noProxy", "caBundle"}
        context = fields(request.get("context", {}), names, "context")
        answer["result"] = perform(Request(settings, context, arguments, answer))
    except Failure as failure:
        answer["error"] = failure.answer
    except Exception as error:  # pylint: disable=broad-except
        traceback.print_exc()
        answer["error"] = {"class": "Internal", "message": f"the driver failed: {type(error).__name__}"}
    return answer


class Request:
    """What was asked for. `answer` gets the account that answers."""

    def __init__(self, settings: dict, context: dict, arguments: dict, answer: dict) -> None:
        self.settings, self.context, self.arguments, self.answer = settings, context, arguments, answer

    def confirm(self, account: str) -> None:
        """Refuses another account than the one of the settings: all instances would seem to be gone there."""
        self.answer["account"] = account
        wanted = self.context.get("accountID")
        if wanted is not None and wanted != account:
            raise Failure("InvalidCredentials", f"the account is {account!r}, and accountID asks for {wanted!r}")

    def changes(self) -> None:
        """Refuses an operation that changes something where only reading is allowed."""
        if self.context.get("readOnly"):
            raise Failure("ReadOnly", "the account is read-only: readOnly is true")


# --- libvirt ----------------------------------------------------------------------------------------------------------------


def failure_of(error: libvirt.libvirtError) -> Failure:
    """Returns the class of an error of libvirt. None is NotFound: whoever looks something up decides that."""
    code, origin = error.get_error_code(), error.get_error_domain()
    message = f"libvirt: {error.get_error_message()}"
    if code in (libvirt.VIR_ERR_AUTH_FAILED, libvirt.VIR_ERR_AUTH_CANCELLED, libvirt.VIR_ERR_AUTH_UNAVAILABLE):
        return Failure("InvalidCredentials", message)
    if code in (libvirt.VIR_ERR_ACCESS_DENIED, libvirt.VIR_ERR_OPERATION_DENIED):
        return Failure("Forbidden", message)
    if code == libvirt.VIR_ERR_NO_SUPPORT:
        return Failure("NotSupported", message)
    if code == libvirt.VIR_ERR_OPERATION_TIMEOUT:
        return Failure("Timeout", message)
    # A volume that is being made, a domain that is being started: it passes.
    if origin in (libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE) or code in (
        libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_RESOURCE_BUSY,
    ):
        return Failure("Unavailable", message)
    return Failure("Internal", message)


def has_code(error: libvirt.libvirtError, *codes: int) -> bool:
    return error.get_error_code() in codes


class Host:
    """A connection to a host whose account was confirmed."""

    def __init__(self, request: Request) -> None:
        self.settings, self.context, self.arguments = request.settings, request.context, request.arguments
        parsed_uri(self.settings)
        try:
            self.connection = libvirt.open(self.settings["uri"])
            self.capabilities = ET.fromstring(self.connection.getCapabilities())
        except libvirt.libvirtError as error:
            raise failure_of(error) from None
        account = self.capabilities.findtext("host/uuid") or ""
        if not account:
            raise Failure("Internal", "libvirt: the capabilities of the host have no UUID")
        request.confirm(account)
        self.account = account

    def domain(self, asked: str) -> libvirt.virDomain:
        """Returns the domain of an id. libvirt also takes a UUID without its hyphens, which is no id."""
        try:
            if is_uuid(asked):
                return self.connection.lookupByUUIDString(asked)
        except libvirt.libvirtError as error:
            if not has_code(error, libvirt.VIR_ERR_NO_DOMAIN):
                raise
        raise not_found("instance", asked)

    def domains(self) -> list["Machine"]:
        """Returns all domains of the host. One that goes in between is left out."""
        found = []
        for domain in self.connection.listAllDomains():
            try:
                found.append(Machine(domain))
            except libvirt.libvirtError as error:
                if not has_code(error, libvirt.VIR_ERR_NO_DOMAIN):
                    raise
        return found


def parsed_uri(settings: dict[str, str]) -> Any:
    """Returns the URI of the settings. Only the system daemon of QEMU is the account that its host is: the daemon of each user has
    domains of its own, and the same UUID of the host."""
    try:
        uri = urlsplit(settings.get("uri", ""))
    except ValueError:
        raise invalid("uri", "uri is no URI") from None
    if uri.scheme not in SCHEMES or uri.path != "/system":
        raise invalid("uri", "uri has to be of the system daemon of QEMU, such as qemu:///system")
    # libvirt separates parameters by both characters, and ignores the case of their names.
    if any(unquote(one.partition("=")[0]).lower() == "command" for one in re.split("[&;]", uri.query)):
        raise invalid("uri", "uri must not have the parameter command: it names a program, which no digest pins")
    return uri


def is_uuid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text) is not None


def is_of_instance(volume_name: str) -> bool:
    return is_uuid(volume_name[:36])


class Machine:
    """A domain, and what the driver keeps in its metadata: nothing if others have made it."""

    def __init__(self, domain: libvirt.virDomain) -> None:
        self.domain = domain
        self.id, self.name = domain.UUIDString(), domain.name()
        self.read()

    def read(self) -> None:
        """Reads the metadata."""
        self.xml = ET.fromstring(self.domain.XMLDesc())
        text = self.xml.findtext(f"metadata/{{{NAMESPACE}}}instance") or "{}"
        try:
            marks = json.loads(text)
        except ValueError:
            marks = {}
        # A copy of a domain has its metadata, and another UUID: others have made it.
        self.marks: dict[str, Any] = marks if isinstance(marks, dict) and marks.get("id") == self.id else {}

    def write(self) -> None:
        """Writes the metadata, where the domain runs and where it is defined."""
        flags = libvirt.VIR_DOMAIN_AFFECT_LIVE if self.domain.isActive() else 0
        flags |= libvirt.VIR_DOMAIN_AFFECT_CONFIG if self.domain.isPersistent() else 0
        self.domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, marks_xml(self.marks), PREFIX, NAMESPACE, flags)

    def is_unfinished(self) -> bool:
        return self.marks.get("owner") is not None and not self.marks.get("complete")

    def state(self) -> str:
        state, reason = self.domain.state()
        if self.marks.get("deleting"):
            return "deleting"
        if state == libvirt.VIR_DOMAIN_PAUSED and reason == libvirt.VIR_DOMAIN_PAUSED_STARTING_UP:
            return "pending"
        if state in (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED):
            return "pending" if self.is_unfinished() else "stopped"
        states = {
            libvirt.VIR_DOMAIN_RUNNING: "running",
            libvirt.VIR_DOMAIN_BLOCKED: "running",
            libvirt.VIR_DOMAIN_SHUTDOWN: "stopping",
        }
        return states.get(state, "unknown")

    def addresses(self) -> list[dict[str, str]]:
        """Returns the addresses that the networks have leased to it, and its name."""
        try:
            leases = self.domain.interfaceAddresses(libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE)
        except libvirt.libvirtError as error:
            # It has stopped, or one of its networks is gone.
            if not has_code(error, libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_NETWORK, libvirt.VIR_ERR_NO_SUPPORT):
                raise
            leases = {}
        found = [lease["addr"] for interface in leases.values() for lease in interface["addrs"] or []]
        # The same order each time, with IPv4 first.
        found.sort(key=lambda address: (":" in address, address))
        return [{"type": "InternalIP", "address": address} for address in found] + [{"type": "Hostname", "address": self.name}]

    def instance(self) -> dict[str, Any]:
        """Returns it as the contract has it."""
        state = self.state()
        instance = {
            "id": self.id,
            "providerID": f"libvirt:///{self.id}",
            "name": self.name,
            "region": REGION,
            "zone": ZONE,
            "state": state,
            "image": self.marks.get("image", ""),
            "instanceType": "",
            "addresses": self.addresses() if state == "running" else [],
            "labels": self.marks.get("labels", {}),
            "created": self.marks.get("created", ""),
        }
        instance.update({name: self.marks[name] for name in ("owner", "cluster") if self.marks.get(name)})
        return instance

    def demand_owner(self) -> None:
        if self.marks.get("owner") is None:
            raise Failure("Forbidden", f"others have made the domain {self.name!r}: this driver changes only its own ones")

    def volumes(self) -> tuple[str, str]:
        """The names of its volumes: the overlay of the base volume, and the disk with the user data."""
        return f"{self.id}.qcow2", f"{self.id}-cidata.iso"


# --- Instances --------------------------------------------------------------------------------------------------------------


def instance_list(host: Host) -> dict[str, Any]:
    wanted = host.arguments
    for field, place in (("region", REGION), ("zone", ZONE)):
        if wanted.get(field) not in (None, place):
            raise invalid(field, f"there is no {field} {wanted[field]!r}: there is only {place!r}")

    def fits(machine: Machine) -> bool:
        labels = machine.marks.get("labels", {})
        return (
            wanted.get("name") in (None, machine.name)
            and wanted.get("owner") in (None, machine.marks.get("owner"))
            and all(labels.get(name) == value for name, value in wanted.get("labels", {}).items())
        )

    found = []
    for machine in filter(fits, host.domains()):
        try:
            found.append(machine.instance())
        except libvirt.libvirtError as error:
            if not has_code(error, libvirt.VIR_ERR_NO_DOMAIN):
                raise
    return {"instances": found}


def asked_for(host: Host) -> str:
    """Returns the id or the providerID that an operation is about, as it was given."""
    return host.arguments.get("id") or host.arguments.get("providerID") or ""


def machine_of(host: Host) -> Machine:
    """Returns the domain that an operation is about."""
    if ("id" in host.arguments) == ("providerID" in host.arguments):
        raise invalid("arguments", "either id or providerID is needed")
    asked = asked_for(host)
    if "id" in host.arguments:
        return Machine(host.domain(asked))
    scheme, _, identity = asked.partition("libvirt:///")
    if scheme or not is_uuid(identity):
        # A Node that others have named is not gone.
        raise invalid("providerID", f"{asked!r} is not of this driver: it has to be libvirt:///UUID")
    try:
        return Machine(host.domain(identity))
    except Failure:
        raise not_found("instance with the providerID", asked) from None


def instance_show(host: Host) -> dict[str, Any]:
    return {"instance": machine_of(host).instance()}


def instance_create(host: Host) -> dict[str, Any]:
    wanted = host.arguments
    check(wanted)
    machine, is_mine = existing(host, wanted), False
    if machine is None:
        machine, is_mine = claim(host, wanted)
    with made(machine.id):
        try:
            if machine.is_unfinished():
                finish(host, machine, wanted, is_mine)
            return {"instance": machine.instance()}
        except libvirt.libvirtError:
            if not is_gone(host, machine):
                raise
            # What was made after the delete would be left.
            delete_volumes(host, machine)
            raise Failure("Unavailable", DELETED) from None


def is_gone(host: Host, machine: Machine) -> bool:
    try:
        host.domain(machine.id)
    except Failure:
        return True
    return False


@contextmanager
def made(identity: str) -> Iterator[None]:
    """Adds to an error the id of the instance that exists by now, so that it is not lost."""
    try:
        yield
    except libvirt.libvirtError as error:
        failure = Failure("Unavailable", DELETED) if has_code(error, libvirt.VIR_ERR_NO_DOMAIN) else failure_of(error)
        failure.answer["instance"] = identity
        raise failure from None
    except Failure as failure:
        failure.answer["instance"] = identity
        raise


def check(wanted: dict[str, Any]) -> None:
    if not wanted.get("key"):
        raise invalid("key", "key is empty")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?", wanted.get("name", "")):
        raise invalid("name", "name has to be a host name of at most 63 letters, digits, hyphens and dots")
    for field, place in (("region", REGION), ("zone", ZONE)):
        if wanted.get(field) not in (None, "", place):
            raise invalid(field, f"there is no {field} {wanted[field]!r}: there is only {place!r}")
    if wanted.get("instanceType"):
        raise invalid("instanceType", "libvirt has no instance types: use the options cpus and memory")
    for label in wanted.get("labels", {}):
        if label.startswith(MARKS):
            raise invalid("labels", f"labels that begin with {MARKS} belong to the driver")
    if is_of_instance(wanted.get("image", "")):
        raise invalid("image", f"{wanted['image']!r} is a disk of an instance")
    try:
        base64.b64decode(wanted.get("userData", ""), validate=True)
    except ValueError:
        raise invalid("userData", "userData is not base64") from None
    for name in ("cpus", "memory"):
        if not re.fullmatch(r"[1-9][0-9]{0,8}", option(wanted, name)):
            raise invalid(name, f"{name} has to be a number that is not 0")


def option(wanted: dict[str, Any], name: str) -> str:
    default = next(one["default"] for one in OPTIONS if one["name"] == name)
    return wanted.get("options", {}).get(name, default)


def existing(host: Host, wanted: dict[str, Any]) -> Optional[Machine]:
    """Returns the domain that an earlier create with the same key has made."""
    machines = host.domains()
    of_key = [machine for machine in machines if machine.marks.get("owner") == wanted["key"]]
    same = [one for one in of_key if one.name == wanted["name"] and one.marks.get("spec") == wanted.get("digest")]
    # Names are unique on a host, and keys are not: two creates with one key and two names may both have begun.
    for other in of_key:
        if other not in same and (not same or same[0].is_unfinished()):
            raise Failure("AlreadyExists", f"the instance {other.name!r} has the same key, and was made of something else")
    if same and same[0].marks.get("deleting"):
        raise Failure("Unavailable", f"the instance {same[0].id!r} with the same key is being deleted: delete it again")
    if not same and any(machine.name == wanted["name"] for machine in machines):
        raise Failure("AlreadyExists", f"there is a domain {wanted['name']!r} with another key")
    return same[0] if same else None


def claim(host: Host, wanted: dict[str, Any]) -> tuple[Machine, bool]:
    """Defines the domain, after everything that it is made of was found. Returns it, or that of another create that was first."""
    pool = wanted_of(lambda: host.connection.storagePoolLookupByName(host.settings["pool"]), "pool", host.settings["pool"])
    image = wanted.get("image") or host.settings["volName"]
    wanted_of(lambda: pool.storageVolLookupByName(image), "image", image)
    networks = wanted.get("networks") or [host.settings["net"]]
    for network in networks:
        wanted_of(lambda name=network: host.connection.networkLookupByName(name), "networks", network)
    marks = {
        "id": str(uuid.uuid4()),
        "owner": wanted["key"],
        "cluster": wanted.get("cluster", ""),
        "spec": wanted.get("digest"),
        "labels": wanted.get("labels", {}),
        "image": image,
        "pool": host.settings["pool"],
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "complete": False,
    }
    try:
        domain = host.connection.defineXML(domain_xml(host, wanted, marks, networks))
    except libvirt.libvirtError as error:
        # The name is that of a domain by now.
        first = existing(host, wanted) if has_code(error, libvirt.VIR_ERR_OPERATION_FAILED, libvirt.VIR_ERR_DOM_EXIST) else None
        if first is None:
            raise
        return first, False
    with made(marks["id"]):
        machine = Machine(domain)
        try:
            # The name was free, and another create may have used the key for another name just now.
            existing(host, wanted)
        except Failure:
            domain.undefine()
            raise
    return machine, True


def wanted_of(look_up: Callable[[], Any], field: str, name: str) -> Any:
    """Looks up what a create names."""
    try:
        return look_up()
    except libvirt.libvirtError as error:
        if has_code(error, libvirt.VIR_ERR_NO_STORAGE_POOL, libvirt.VIR_ERR_NO_STORAGE_VOL, libvirt.VIR_ERR_NO_NETWORK):
            raise invalid(field, f"there is no {name!r} on the host") from None
        raise


def domain_xml(host: Host, wanted: dict[str, Any], marks: dict[str, Any], networks: list[str]) -> str:
    identity = marks["id"]
    architecture = host.capabilities.findtext("host/cpu/arch") or ""
    guests = host.capabilities.findall(f"guest/arch[@name='{architecture}']/domain")
    has_kvm = any(guest.get("type") == "kvm" for guest in guests)
    disks = "".join(
        f"""
    <disk type="volume" device="disk">
      <driver name="qemu" type="{kind}"/>
      <source pool={quoteattr(marks["pool"])} volume="{identity}{suffix}"/>
      <target dev="{device}" bus="virtio"/>{more}
    </disk>"""
        for suffix, kind, device, more in ((".qcow2", "qcow2", "vda", ""), ("-cidata.iso", "raw", "vdb", "<readonly/>"))
    )
    interfaces = "".join(
        f"""
    <interface type="network"><source network={quoteattr(network)}/><model type="virtio"/></interface>"""
        for network in networks
    )
    return f"""<domain type="{"kvm" if has_kvm else "qemu"}">
  <name>{escape(wanted["name"])}</name>
  <uuid>{identity}</uuid>
  <metadata>{marks_xml(marks, f' xmlns:{PREFIX}="{NAMESPACE}"', f"{PREFIX}:")}</metadata>
  <memory unit="MiB">{option(wanted, "memory")}</memory>
  <vcpu>{option(wanted, "cpus")}</vcpu>
  <os><type arch="{escape(architecture)}">hvm</type><boot dev="hd"/></os>
  <features><acpi/></features>
  {cpu_xml(option(wanted, "cpuModel")) if has_kvm else ""}
  <devices>{disks}{interfaces}
    <serial type="pty"/>
    <console type="pty"><target type="serial"/></console>
    <rng model="virtio"><backend model="random">/dev/urandom</backend></rng>
  </devices>
</domain>"""


def cpu_xml(model: str) -> str:
    if model in ("host-model", "host-passthrough"):
        return f'<cpu mode="{model}"/>'
    return f'<cpu mode="custom" match="exact"><model fallback="forbid">{escape(model)}</model></cpu>'


def marks_xml(marks: dict[str, Any], namespace: str = "", prefix: str = "") -> str:
    """The element of the metadata. In JSON every character of a label is one that XML has."""
    return f"<{prefix}instance{namespace}>{escape(json.dumps(marks))}</{prefix}instance>"


def finish(host: Host, machine: Machine, wanted: dict[str, Any], is_mine: bool) -> None:
    """Makes what a domain lacks, and starts it."""
    end = time.monotonic() + OTHER_CREATE_SECONDS
    while not is_mine and time.monotonic() < end:
        time.sleep(0.25)
        machine.read()
        if not machine.is_unfinished():
            return
    if not machine.domain.isActive():
        make_volumes(host, machine, wanted)
        start(machine)
    machine.marks["complete"] = True
    machine.write()


def make_volumes(host: Host, machine: Machine, wanted: dict[str, Any]) -> None:
    disk, seed = machine.volumes()
    pool = host.connection.storagePoolLookupByName(machine.marks["pool"])
    image = machine.marks["image"]
    base = ET.fromstring(wanted_of(lambda: pool.storageVolLookupByName(image), "image", image).XMLDesc())
    layout = base.find("target/format")
    volume(
        pool,
        disk,
        f"""<volume>
  <name>{disk}</name>
  <capacity>{base.findtext("capacity")}</capacity>
  <target><format type="qcow2"/></target>
  <backingStore>
    <path>{escape(base.findtext("target/path") or "")}</path>
    <format type={quoteattr("raw" if layout is None else layout.get("type", "raw"))}/>
  </backingStore>
</volume>""",
    )
    # JSON is YAML, too.
    meta_data = json.dumps({"instance-id": machine.id, "local-hostname": machine.name}).encode()
    content = iso9660("cidata", {"meta-data": meta_data, "user-data": base64.b64decode(wanted.get("userData", ""))})
    size = len(content)
    target = volume(
        pool, seed, f'<volume><name>{seed}</name><capacity>{size}</capacity><target><format type="raw"/></target></volume>'
    )
    stream = host.connection.newStream()
    target.upload(stream, 0, size)
    while content:
        content = content[stream.send(content[: 1 << 16]) :]
    stream.finish()


def volume(pool: libvirt.virStoragePool, name: str, xml: str) -> libvirt.virStorageVol:
    """Makes a volume unless an earlier create has made it."""
    try:
        return pool.createXML(xml)
    except libvirt.libvirtError as error:
        if not has_code(error, libvirt.VIR_ERR_STORAGE_VOL_EXIST):
            raise
    return pool.storageVolLookupByName(name)


def iso9660(label: str, files: dict[str, bytes]) -> bytes:
    """Returns an image of a file system with some files in its root, sorted by their names. cloud-init looks for its label. The
    names are lowercase, which ISO 9660 does not have, and every system reads."""
    size = 2048

    def both(form: str, number: int) -> bytes:
        return struct.pack("<" + form, number) + struct.pack(">" + form, number)

    def record(name: bytes, begin: int, length: int, flags: int) -> bytes:
        entry = bytes(1) + both("I", begin) + both("I", length) + bytes((100, 1, 1, 0, 0, 0, 0)) + bytes((flags, 0, 0))
        entry += both("H", 1) + bytes((len(name),)) + name
        entry += bytes((len(entry) + 1) % 2)
        return bytes((len(entry) + 1,)) + entry

    def padded(content: bytes) -> bytes:
        return content + bytes(-len(content) % size)

    root, data, begin = 20, b"", 21
    entries = record(b"\0", root, size, 2) + record(b"\1", root, size, 2)
    for name, content in files.items():
        entries += record(name.encode() + b";1", begin + len(data) // size, len(content), 0)
        data += padded(content)
    total = begin + len(data) // size
    paths = [bytes((1, 0)) + struct.pack(order + "IH", root, 1) + bytes(2) for order in "<>"]
    primary = b"\1CD001\1\0" + b" " * 32 + label.encode().ljust(32) + bytes(8) + both("I", total) + bytes(32)
    primary += both("H", 1) + both("H", 1) + both("H", size) + both("I", len(paths[0]))
    primary += struct.pack("<II", 18, 0) + struct.pack(">II", 19, 0) + record(b"\0", root, size, 2)
    primary += b" " * (4 * 128 + 3 * 37) + (b"0" * 16 + b"\0") * 4 + b"\1"
    blocks = [primary, b"\xffCD001\1", paths[0], paths[1], entries]
    return bytes(16 * size) + b"".join(map(padded, blocks)) + data


def instance_start(host: Host) -> dict[str, Any]:
    machine = machine_of(host)
    machine.demand_owner()
    if machine.marks.get("deleting"):
        raise invalid("id", f"{machine.name!r} is being deleted: delete it again")
    if machine.is_unfinished() and not machine.domain.isActive():
        raise invalid("id", f"the creation of {machine.name!r} has not finished: create it again")
    start(machine)
    state, reason = machine.domain.state()
    if state == libvirt.VIR_DOMAIN_PAUSED and reason != libvirt.VIR_DOMAIN_PAUSED_STARTING_UP:
        machine.domain.resume()
    return {}


def start(machine: Machine) -> None:
    try:
        machine.domain.create()
    except libvirt.libvirtError as error:
        if not has_code(error, libvirt.VIR_ERR_OPERATION_INVALID) or not machine.domain.isActive():
            raise


def instance_stop(host: Host) -> dict[str, Any]:
    """Asks the guest to shut down, and powers it off if it does not."""
    machine = machine_of(host)
    machine.demand_owner()
    limit = host.context.get("timeoutSeconds") or 0
    end = time.monotonic() + (min(SHUTDOWN_SECONDS, limit / 2) if limit else SHUTDOWN_SECONDS)
    try:
        machine.domain.shutdown()
    except libvirt.libvirtError as error:
        if not has_code(error, libvirt.VIR_ERR_OPERATION_INVALID):
            raise
        # It has stopped, or is paused: then there is nobody to ask.
        end = time.monotonic()
    while machine.domain.isActive():
        if time.monotonic() >= end:
            power_off(machine)
        time.sleep(0.25)
    return {}


def power_off(machine: Machine) -> None:
    try:
        machine.domain.destroy()
    except libvirt.libvirtError as error:
        # It has stopped by itself.
        if not has_code(error, libvirt.VIR_ERR_OPERATION_INVALID):
            raise


def instance_delete(host: Host) -> dict[str, Any]:
    """Deletes the volumes before the domain, whose metadata says which ones they are. Repeats it until the domain is gone: a create
    that has not finished may start it, and then it runs on without its definition."""
    try:
        while True:
            machine = machine_of(host)
            machine.demand_owner()
            mark_deleting(machine)
            power_off(machine)
            delete_volumes(host, machine)
            machine.domain.undefineFlags(
                libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
                | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            )
    except libvirt.libvirtError as error:
        if not has_code(error, libvirt.VIR_ERR_NO_DOMAIN):
            raise
    except Failure as failure:
        if failure.answer["class"] != "NotFound":
            raise
    return {}


def mark_deleting(machine: Machine) -> None:
    """Shows that an instance has lost its volumes, if the delete is interrupted. A full disk, which may be the reason for the delete,
    does not prevent it."""
    machine.marks["deleting"] = True
    try:
        machine.write()
    except libvirt.libvirtError as error:
        if has_code(error, libvirt.VIR_ERR_NO_DOMAIN):
            raise


def delete_volumes(host: Host, machine: Machine) -> None:
    try:
        pool = host.connection.storagePoolLookupByName(machine.marks["pool"])
    except libvirt.libvirtError as error:
        if not has_code(error, libvirt.VIR_ERR_NO_STORAGE_POOL):
            raise
        return
    for name in machine.volumes():
        try:
            pool.storageVolLookupByName(name).delete()
        except libvirt.libvirtError as error:
            if not has_code(error, libvirt.VIR_ERR_NO_STORAGE_VOL):
                raise


def instance_metrics(host: Host) -> dict[str, Any]:
    machine = machine_of(host)
    records = host.connection.domainListGetStats([machine.domain])
    stats = records[0][1] if records else {}

    def total(kind: str, direction: str) -> Optional[int]:
        values = [value for name, value in stats.items() if re.fullmatch(rf"{kind}\.\d+\.{direction}\.bytes", name)]
        return sum(values) if values else None

    def kib(name: str) -> Optional[int]:
        return stats[name] * 1024 if name in stats else None

    return {
        "processorSeconds": stats["cpu.time"] / 1e9 if "cpu.time" in stats else None,
        "memoryBytes": kib("balloon.rss"),
        "memoryLimitBytes": kib("balloon.maximum"),
        "networkReceivedBytes": total("net", "rx"),
        "networkSentBytes": total("net", "tx"),
        "diskReadBytes": total("block", "rd"),
        "diskWrittenBytes": total("block", "wr"),
    }


# --- Account, places and inventory ------------------------------------------------------------------------------------------


def account_show(host: Host) -> dict[str, Any]:
    return {"id": host.account, "name": host.connection.getHostname(), "subAccounts": []}


def verify_settings(host: Host) -> dict[str, Any]:
    settings = host.settings
    pool = wanted_of(lambda: host.connection.storagePoolLookupByName(settings["pool"]), "pool", settings["pool"])
    wanted_of(lambda: pool.storageVolLookupByName(settings["volName"]), "volName", settings["volName"])
    wanted_of(lambda: host.connection.networkLookupByName(settings["net"]), "net", settings["net"])
    return {}


def region_list(_: Host) -> dict[str, Any]:
    return {"regions": [{"id": REGION, "name": REGION}]}


def demand_region(host: Host) -> None:
    if host.arguments.get("region") not in (None, REGION):
        raise invalid("region", f"there is no region {host.arguments['region']!r}: there is only {REGION!r}")


def zone_list(host: Host) -> dict[str, Any]:
    demand_region(host)
    return {"zones": [{"id": ZONE, "name": ZONE, "region": REGION}]}


def resource(identity: str, name: str, **details: str) -> dict[str, Any]:
    return {"id": identity, "name": name, "region": REGION, "details": details}


def network_list(host: Host) -> dict[str, Any]:
    demand_region(host)
    networks = [
        resource(network.UUIDString(), network.name(), active=str(bool(network.isActive())).lower())
        for network in host.connection.listAllNetworks()
    ]
    return {"resources": networks}


def host_list(host: Host) -> dict[str, Any]:
    demand_region(host)
    model, memory, cpus = host.connection.getInfo()[:3]
    details = {"architecture": model, "memoryMiB": str(memory), "cpus": str(cpus)}
    return {"resources": [resource(host.account, host.connection.getHostname(), **details)]}


def storage_list(host: Host) -> dict[str, Any]:
    demand_region(host)
    pools = []
    for pool in host.connection.listAllStoragePools():
        _, capacity, _, available = pool.info()
        pools.append(resource(pool.UUIDString(), pool.name(), capacityBytes=str(capacity), availableBytes=str(available)))
    return {"resources": pools}


def image_list(host: Host) -> dict[str, Any]:
    """The volumes of the pool of the settings, without those of instances."""
    demand_region(host)
    name = host.settings["pool"]
    pool = wanted_of(lambda: host.connection.storagePoolLookupByName(name), "pool", name)
    volumes = [one for one in pool.listAllVolumes() if not is_of_instance(one.name())]
    return {"resources": [resource(one.key(), one.name(), pool=name) for one in volumes]}


# --- Operations -------------------------------------------------------------------------------------------------------------


def describe(_: Request) -> dict[str, Any]:
    return DESCRIPTION


def endpoint(request: Request) -> dict[str, Any]:
    """The socket of the daemon, where there is one: what goes through ssh or TLS has no place that could stand in for it."""
    through = fields(request.arguments.get("through", {}), {"tcp", "unix"}, "through")
    uri = parsed_uri(request.settings)
    parameters = dict(parse_qsl(uri.query))
    is_local = uri.scheme in ("qemu", "qemu+unix") and not uri.netloc
    place = {"unix": parameters.get("socket", SOCKET)} if is_local else None
    settings = dict(request.settings)
    if "unix" in through and is_local:
        query = urlencode({**parameters, "socket": through["unix"]}, quote_via=quote, safe="/")
        settings["uri"] = f"qemu+unix:///system?{query}"
    return {"endpoint": place, "settings": settings}


def on_host(perform: Callable[[Host], dict[str, Any]], is_change: bool = False) -> Callable[[Request], dict[str, Any]]:
    """An operation that asks libvirt."""

    def operation(request: Request) -> dict[str, Any]:
        host = Host(request)
        if is_change:
            request.changes()
        try:
            return perform(host)
        except libvirt.libvirtError as error:
            if has_code(error, libvirt.VIR_ERR_NO_DOMAIN) and asked_for(host):
                raise not_found("instance", asked_for(host)) from None
            raise failure_of(error) from None

    return operation


SPEC = {
    "key", "cluster", "name", "region", "zone", "image", "instanceType", "userData", "networks", "labels", "options", "digest",
}
OPERATIONS: dict[Any, tuple[Callable[[Request], dict[str, Any]], set[str]]] = {
    "describe": (describe, set()),
    "endpoint": (endpoint, {"through"}),
    "account-show": (on_host(account_show), set()),
    "verify-settings": (on_host(verify_settings), set()),
    "region-list": (on_host(region_list), set()),
    "zone-list": (on_host(zone_list), {"region"}),
    "instance-list": (on_host(instance_list), {"region", "zone", "name", "owner", "labels"}),
    "instance-show": (on_host(instance_show), {"id", "providerID"}),
    "instance-create": (on_host(instance_create, is_change=True), SPEC),
    "instance-delete": (on_host(instance_delete, is_change=True), {"id"}),
    "instance-start": (on_host(instance_start, is_change=True), {"id"}),
    "instance-stop": (on_host(instance_stop, is_change=True), {"id"}),
    "instance-metrics": (on_host(instance_metrics), {"id"}),
    "network-list": (on_host(network_list), {"region"}),
    "host-list": (on_host(host_list), {"region"}),
    "storage-list": (on_host(storage_list), {"region"}),
    "image-list": (on_host(image_list), {"region"}),
}


def main() -> None:
    # Errors are in the answer. By default libvirt prints them, too.
    libvirt.registerErrorHandler(lambda *_: None, None)
    json.dump(answer_to(sys.stdin.buffer.read()), sys.stdout)


if __name__ == "__main__":
    main()
