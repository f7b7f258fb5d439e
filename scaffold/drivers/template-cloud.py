#!/usr/bin/env python3
"""The driver of template-cloud, for ccm-cloud and for the cloud-controller-manager.

Each operation is a process of its own: one request on standard input, one answer on standard output, both JSON. The page
"The protocol of external drivers" of ccm-operator has all operations with their fields.

Until it is changed, its cloud is a file, the setting `file`, so it works as it is. Replace the methods of the class Cloud one by
one with calls of your cloud, and run `ccm-cloud ... verify` after each. The rest checks requests and writes answers; it can stay.

It needs Python 3.9 or newer and nothing else. Whatever it imports is not a part of its digest.
"""

import contextlib
import fcntl
import json
import os
import sys
import time

NAME = "template-cloud"
VERSION = "0.1.0"
PROTOCOL = 1

# Each setting is a flag and a variable: file is --file and TEMPLATE_CLOUD_FILE. A secret one is in no output and no log.
SETTINGS = [
    {"name": "file", "type": "path", "required": True, "help": "The whole path of the file that is the cloud."},
    # With a real cloud it is required and has no default.
    {"name": "token", "type": "text", "default": "change-me", "secret": True, "help": "The token of the account."},
    # Only instance-create and verify-settings look at these: what is gone must not prevent that instances are deleted.
    {"name": "image", "type": "text", "default": "debian", "help": "The image of instances for which none is given."},
    {"name": "network", "type": "text", "default": "default", "help": "Their network."},
    {"name": "instanceType", "type": "text", "default": "small", "help": "Their instance type."},
]

# What only this cloud has, for single instances: each is --option NAME=VALUE of instance-create.
OPTIONS = []

# Leave out what the cloud cannot do. "emulated" is for what it does not have, such as the only region of a private cloud.
CAPABILITIES = {
    name: {"readOnly": False, "emulated": False}
    for name in ["instances", "topology", "networks", "images", "instance-types", "metrics", "run-command"]
}

# Labels with this beginning are the driver's own.
PREFIX = "ccm-operator.dev/"


class Failure(Exception):
    """An error of one of the classes of the contract. It may have the fields id, field, instance and retryAfterSeconds."""

    def __init__(self, kind, message, **fields):
        super().__init__(message)
        self.error = {"class": kind, "message": message, **fields}


def invalid(field, message):
    return Failure("InvalidArgument", message, field=field)


def not_found(what, name):
    """The only error that may lead to a deletion: the right account was asked, and does not have it."""
    return Failure("NotFound", f"there is no {what} {name!r}", id=name)


class Cloud:
    """The cloud, as long as it is a file. Each public method is one operation of the protocol."""

    REGIONS = [{"id": "north", "name": "North"}, {"id": "south", "name": "South"}]
    ZONES = [{"id": "north-1", "name": "North 1", "region": "north"}, {"id": "south-1", "name": "South 1", "region": "south"}]
    IMAGES, NETWORKS, TYPES = ["debian", "fedora"], ["default", "private"], ["small", "large"]

    def __init__(self, settings, context, account):
        # A client of a real cloud has to heed these: the limit of the operation in seconds, 0 for none, and, if they are there,
        # the proxy and the certificates. The driver has no environment that it could take them from.
        #   context["timeoutSeconds"], context.get("proxy"), context.get("noProxy"), context.get("caBundle")
        self.settings, self.account = settings, account
        self.path = settings["file"]
        if not os.path.isabs(self.path):
            raise invalid("file", f"{self.path!r} is no whole path: it has to begin with /")

    @contextlib.contextmanager
    def opened(self):
        """Locks and reads the file. Several operations may run at once."""
        try:
            lock = open(self.path + ".lock", "w")
        except OSError as error:
            raise invalid("file", f"failed to open {self.path}.lock: {error.strerror}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                with open(self.path, encoding="utf-8") as file:
                    self.state = json.load(file)
            except FileNotFoundError:
                account = {"id": "a-" + os.urandom(16).hex(), "name": "the file", "token": "change-me"}
                self.state = {"account": account, "next": 1, "instances": []}
                self.write()
            self.log_in()
            yield

    def log_in(self):
        """Who is it? With wrong credentials everything is InvalidCredentials, and never NotFound or an empty list."""
        account = self.state["account"]
        if self.settings.get("token") != account["token"]:
            raise Failure("InvalidCredentials", "the token is wrong")
        self.account["id"] = account["id"]

    def write(self):
        """Replaces the file as a whole, so that a process that is ended leaves the old one or the new one."""
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.state, file, indent=1)
        os.replace(self.path + ".new", self.path)

    def find(self, instance_id):
        """The instance with exactly this id. The beginning of an id, or a name, is none."""
        for instance in self.state["instances"]:
            if instance["id"] == instance_id:
                return instance
        raise not_found("instance", instance_id)

    def own(self, instance_id):
        """The same, to change it. Without an owner it was made by others."""
        instance = self.find(instance_id)
        if "owner" not in instance:
            raise Failure("Forbidden", f"others have made the instance {instance_id!r}")
        return instance

    def region(self, region):
        # An empty list for a typo would look as if all instances were gone.
        if region and region not in [one["id"] for one in self.REGIONS]:
            raise invalid("region", f"there is no region {region!r}")

    def account_show(self):
        account = self.state["account"]
        return {"id": account["id"], "name": account["name"], "subAccounts": []}

    def verify_settings(self):
        for field, choices in [("image", self.IMAGES), ("network", self.NETWORKS), ("instanceType", self.TYPES)]:
            self.choose(field, self.settings[field], choices)
        return {}

    @staticmethod
    def choose(field, name, choices):
        if name not in choices:
            raise invalid(field, f"there is no {field} {name!r}")
        return name

    def region_list(self):
        return {"regions": self.REGIONS}

    def zone_list(self, region=None):
        self.region(region)
        return {"zones": [zone for zone in self.ZONES if region in (None, zone["region"])]}

    def instance_list(self, region=None, zone=None, name=None, owner=None, labels=None):
        """All instances that fit, also those that others have made. If a page of the list is missing, it has to fail."""
        self.region(region)
        if zone and zone not in [one["id"] for one in self.ZONES]:
            raise invalid("zone", f"there is no zone {zone!r}")
        wanted = {"region": region, "zone": zone, "name": name, "owner": owner}

        def fits(instance):
            fields = all(value is None or instance.get(field) == value for field, value in wanted.items())
            return fields and all(instance["labels"].get(label) == value for label, value in (labels or {}).items())

        return {"instances": [self.shown(instance) for instance in self.state["instances"] if fits(instance)]}

    @staticmethod
    def shown(instance):
        """An instance as answers have it. With a real cloud, its tags become labels, owner and cluster here."""
        return {field: value for field, value in instance.items() if field != "digest"}

    def instance_show(self, **by):
        if list(by) == ["id"]:
            return {"instance": self.shown(self.find(by["id"]))}
        if list(by) != ["providerID"]:
            raise invalid("arguments", "either id or providerID is needed")
        provider_id = by["providerID"]
        if not provider_id.startswith(f"{NAME}://"):
            # The Node of another cloud is not one whose instance is gone.
            raise invalid("providerID", f"{provider_id!r} is not of this driver: it has to begin with {NAME}://")
        for instance in self.state["instances"]:
            if instance["providerID"] == provider_id:
                return {"instance": self.shown(instance)}
        raise not_found("instance with the providerID", provider_id)

    def instance_create(
        self, key, name, digest, cluster="", region="", zone="", image="", instanceType="", userData="", networks=(),
        labels=None, options=None,
    ):  # fmt: skip
        """Makes one instance for a key. The same key and digest again return it; it may be repeated after any failure."""
        if not key or not name:
            raise invalid("name" if key else "key", "it is empty")
        labels = labels or {}
        if any(label.startswith(PREFIX) for label in labels):
            raise invalid("labels", f"labels that begin with {PREFIX} are the driver's own")
        if options:
            raise invalid("options", f"there is no option {sorted(options)[0]!r}")
        for instance in self.state["instances"]:
            if instance.get("owner") == key and instance["digest"] == digest:
                # If a real cloud needs several requests, and one of them failed the last time, go on here.
                return {"instance": self.shown(instance)}
        for instance in self.state["instances"]:
            if instance.get("owner") == key or instance["name"] == name:
                raise Failure("AlreadyExists", f"the instance {instance['id']!r} has this key or the name {name!r}")
        zones = [one for one in self.ZONES if region in ("", one["region"]) and zone in ("", one["id"])]
        self.region(region)
        if not zones:
            raise invalid("zone", f"there is no zone {zone!r}")
        image = self.choose("image", image or self.settings["image"], self.IMAGES)
        for network in networks or [self.settings["network"]]:
            self.choose("networks", network, self.NETWORKS)
        number = self.state["next"]
        instance_id = "i-" + os.urandom(16).hex()
        instance = {
            "id": instance_id,
            # The same forever: it becomes spec.providerID of the Node.
            "providerID": f"{NAME}://{instance_id}",
            "name": name,
            "region": zones[0]["region"],
            "zone": zones[0]["id"],
            "state": "running",
            "image": image,
            "instanceType": self.choose("instanceType", instanceType or self.settings["instanceType"], self.TYPES),
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": f"10.0.{number // 250 % 250}.{number % 250 + 1}"},
            ],
            "labels": labels,
            # A real cloud keeps these three with the instance, as the tags ccm-operator.dev/owner, /cluster and /spec. The same
            # request that makes the instance has to set them: what has no owner is never deleted.
            "owner": key,
            "digest": digest,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        if cluster:
            instance["cluster"] = cluster
        # base64.b64decode(userData) is what the instance reads at its first start. Give it to the cloud, and write it nowhere.
        # A call that fails after something was made: raise Failure(..., instance=instance_id), so that it is not lost.
        self.state["next"] += 1
        self.state["instances"].append(instance)
        self.write()
        return {"instance": self.shown(instance)}

    def instance_delete(self, id):
        """Deletes an instance and what was made with it. One that is gone is a success."""
        try:
            self.state["instances"].remove(self.own(id))
        except Failure as failure:
            if failure.error["class"] != "NotFound":
                raise
        self.write()
        return {}

    def instance_start(self, id):
        self.own(id)["state"] = "running"
        self.write()
        return {}

    def instance_stop(self, id):
        """Stops an instance, which then exists all the same: instance-show has it, with the state stopped."""
        self.own(id)["state"] = "stopped"
        self.write()
        return {}

    def resources(self, region, kind, names):
        self.region(region)
        regions = [one["id"] for one in self.REGIONS if region in (None, one["id"])]
        # An id is of one region. The name is what instance-create takes.
        return {
            "resources": [
                {"id": f"{kind}-{place}-{name}", "name": name, "region": place, "details": {}}
                for place in regions
                for name in names
            ]
        }

    def network_list(self, region=None):
        return self.resources(region, "net", self.NETWORKS)

    def image_list(self, region=None):
        return self.resources(region, "img", self.IMAGES)

    def instance_type_list(self, region=None):
        return self.resources(region, "type", self.TYPES)

    def instance_metrics(self, id):
        """What an instance has used since its start. Leave out what the cloud does not know."""
        self.find(id)
        return {"processorSeconds": 1.5, "memoryBytes": 64 << 20}

    def instance_run(self, id, command):
        if self.own(id)["state"] != "running":
            raise invalid("id", f"the instance {id!r} does not run")
        if command[:1] == ["hostname"]:
            return {"exitCode": 0, "stdout": self.find(id)["name"] + "\n", "stderr": ""}
        known = {"true": 0, "false": 1}.get(command[0] if command else "")
        return {"exitCode": 127 if known is None else known, "stdout": "", "stderr": ""}


# The arguments of each operation: those that it needs, and others that it takes.
OPERATIONS = {
    "account-show": ([], []),
    "verify-settings": ([], []),
    "region-list": ([], []),
    "zone-list": ([], ["region"]),
    "instance-list": ([], ["region", "zone", "name", "owner", "labels"]),
    "instance-show": ([], ["id", "providerID"]),
    "instance-create": (
        ["key", "name", "digest"],
        ["cluster", "region", "zone", "image", "instanceType", "userData", "networks", "labels", "options"],
    ),
    "instance-delete": (["id"], []),
    "instance-start": (["id"], []),
    "instance-stop": (["id"], []),
    "network-list": ([], ["region"]),
    "image-list": ([], ["region"]),
    "instance-type-list": ([], ["region"]),
    "instance-metrics": (["id"], []),
    "instance-run": (["id", "command"], []),
}
CHANGES = ["instance-create", "instance-delete", "instance-start", "instance-stop", "instance-run"]
CONTEXT = ["accountID", "timeoutSeconds", "readOnly", "proxy", "noProxy", "caBundle"]


def describe():
    return {
        "name": NAME,
        "version": VERSION,
        "summary": "Instances of template-cloud.",
        "settings": SETTINGS,
        "options": OPTIONS,
        "capabilities": CAPABILITIES,
        "idPrefix": NAME + "/",
    }


def refuse_unknown(what, given, known):
    """A field that is not understood may change the meaning of a request."""
    for field in given:
        if field not in known:
            raise invalid(field, f"{what} has no field {field!r}")


def perform(request, account):
    if request.get("protocolVersion") != PROTOCOL:
        raise Failure("NotSupported", f"this driver has version {PROTOCOL} of the protocol only")
    refuse_unknown("a request", request, ["protocolVersion", "operation", "context", "settings", "arguments"])
    operation = request.get("operation")
    context, settings, arguments = (request.get(part) or {} for part in ["context", "settings", "arguments"])
    refuse_unknown("context", context, CONTEXT)
    refuse_unknown("settings", settings, [setting["name"] for setting in SETTINGS])
    if operation == "describe":
        refuse_unknown("describe", arguments, [])
        return describe()
    if operation == "endpoint":
        # With a real cloud, the place that it connects to. Some checks put a proxy in between, and cannot run without it.
        raise Failure("NotSupported", "a file has no endpoint")
    if operation not in OPERATIONS:
        raise Failure("NotSupported", f"there is no operation {operation!r}")
    needed, others = OPERATIONS[operation]
    refuse_unknown(operation, arguments, needed + others)
    for field in needed:
        if field not in arguments:
            raise invalid(field, f"{operation} needs it")
    cloud = Cloud(settings, context, account)
    with cloud.opened():
        wanted = context.get("accountID")
        if wanted and wanted != account["id"]:
            raise Failure("InvalidCredentials", f"the token is of the account {account['id']!r}, not of {wanted!r}")
        if context.get("readOnly") and operation in CHANGES:
            raise Failure("ReadOnly", "the setting readOnly is true")
        return getattr(cloud, operation.replace("-", "_"))(**arguments)


def main():
    # An exception that is no Failure ends the process with exit status 1 and the traceback on standard error: it is a fault of
    # the driver, the class Internal.
    request, account = json.load(sys.stdin.buffer), {}
    try:
        answer = {"result": perform(request, account)}
    except Failure as failure:
        answer = {"error": failure.error}
    if account:
        answer["account"] = account["id"]
    json.dump({"protocolVersion": PROTOCOL, **answer}, sys.stdout)


main()
