#!/usr/bin/python3 -I
"""A driver of ccm-cloud for AWS: instances are those of EC2 in one region of an account.

It needs Python 3.9 or newer with boto3 (`pip install boto3`, or Debian's python3-boto3). If boto3 is in an environment of its own,
put that environment's python into the first line, and take the digest of the file after that. docs/drivers/aws.md describes its
settings, and docs/drivers/protocol.md the protocol. Its license is that of the project.

The tags of an instance have its key, the digest of what it was made of, and its labels. They are given with the request that makes
it, so there is no instance without them. EC2 itself makes one of several creates with the same key: they have the same client token.
"""

import base64
import hashlib
import json
import os
import re
import sys
import time
import traceback
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Optional
from urllib.parse import SplitResult, urlsplit, urlunsplit

try:
    import boto3
    import botocore.exceptions
    import botocore.parsers
    from botocore.config import Config
except ImportError as problem:
    advice = f"install boto3 for {sys.executable} (Debian: python3-boto3), or put a Python that has it into the driver's first line"
    json.dump({"protocolVersion": 1, "error": {"class": "Internal", "message": f"{problem}: {advice}"}}, sys.stdout)
    sys.exit()

VERSION = "1.0.0"
# The labels that belong to the driver, and the tags that it keeps them in.
MARKS = "ccm-operator.dev/"
OWNER, CLUSTER, SPEC = MARKS + "owner", MARKS + "cluster", MARKS + "spec"
NAME = "Name"
# The characters of a tag.
TAG = r"[\w .:/=+\-@]"
USER_DATA_BYTES = 16384
# The limits of one request to AWS. The caller has a limit for the whole operation.
CONNECT_SECONDS, READ_SECONDS = 5, 20
# How often a key may be used again after its instance was deleted: EC2 remembers client tokens for longer than the instance.
GENERATIONS = 50
# A new instance is seen by all of EC2 before this time is over, and a terminated one is seen for longer.
SEEN_AFTER = timedelta(minutes=15)
# The role of the machine is that of this machine, and never that of a proxy.
METADATA = "169.254.169.254,fd00:ec2::254"

SETTINGS = [
    {"name": "region", "type": "text", "required": True, "help": "The region, such as eu-central-1. It is a part of the account's id."},
    {
        "name": "accessKeyID", "type": "text",
        "help": "The id of an access key. Without one, the role of the machine that the driver runs on is used.",
    },
    {"name": "secretAccessKey", "type": "text", "secret": True, "help": "The secret of the access key."},
    {"name": "sessionToken", "type": "text", "secret": True, "help": "The session token of temporary credentials."},
    {"name": "endpointURL", "type": "text", "help": "The URL of all services, instead of those of AWS: for a private copy or a test."},
    {"name": "image", "type": "text", "help": "The AMI of instances that are created without an image."},
    {"name": "instanceType", "type": "text", "default": "t3.medium", "help": "The type of instances that are created without one."},
    {"name": "subnet", "type": "text", "help": "The subnet of instances that are created without a network; else the default subnet."},
    {"name": "securityGroups", "type": "list", "help": "The ids of the security groups of new instances; else the default group."},
]
DESCRIPTION = {
    "name": "aws",
    "version": VERSION,
    "summary": "Instances are those of AWS EC2, in one region.",
    "settings": SETTINGS,
    "options": [],
    "capabilities": {
        "account": {"readOnly": False, "emulated": False},
        "topology": {"readOnly": True, "emulated": False},
        "instances": {"readOnly": False, "emulated": False},
        "networks": {"readOnly": True, "emulated": False},
        "images": {"readOnly": True, "emulated": False},
    },
    "idPrefix": "aws/",
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


# --- AWS --------------------------------------------------------------------------------------------------------------------

CREDENTIALS = {
    "AuthFailure", "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidAccessKeyId", "InvalidClientTokenId",
    "MissingAuthenticationToken", "OptInRequired", "RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClientException",
}
FORBIDDEN = {
    "AccessDenied", "AccessDeniedException", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "OperationNotPermitted",
    "PendingVerification", "UnauthorizedOperation", "VcpuLimitExceeded",
}
RATE_LIMITED = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"}
UNAVAILABLE = {
    "IncorrectInstanceState", "InsufficientInstanceCapacity", "InternalError", "InternalFailure", "RequestTimeout",
    "ServiceUnavailable", "Unavailable",
}
# The beginnings of codes that say that something does not exist or cannot be used, with the field that names it.
FIELDS = {
    "InvalidAMIID": "image",
    "TagLimitExceeded": "labels",
    "InvalidInstanceType": "instanceType",
    "InvalidSubnet": "networks",
    "InvalidSecurityGroup": "securityGroups",
    "InvalidGroup": "securityGroups",
    "InvalidUserData": "userData",
    "InvalidZone": "zone",
}


NO_URL = "endpointURL has to be a whole URL, such as http://127.0.0.1:5000 or https://ec2.example"
# What boto3 raises.
ERRORS = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, botocore.parsers.ResponseParserError)


def failure_of(error: Exception) -> Failure:
    """Returns the class of an error of boto3. None is NotFound: whoever looks something up decides that."""
    message = f"AWS: {error}"
    if isinstance(error, botocore.exceptions.ClientError):
        return failure_of_code(code_of(error), error.response, message)
    if isinstance(error, (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError)):
        return Failure("InvalidCredentials", f"{message}: set accessKeyID and secretAccessKey")
    if isinstance(error, botocore.exceptions.SSLError):
        return Failure("InvalidCredentials", f"{message}: the certificate of AWS is not verified, see caBundle")
    if isinstance(error, (botocore.exceptions.ReadTimeoutError, botocore.exceptions.ConnectTimeoutError)):
        return Failure("Timeout", message)
    if isinstance(error, (botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError)):
        return Failure("Unavailable", message)
    if isinstance(error, botocore.parsers.ResponseParserError):
        return Failure("Internal", "AWS: an answer that cannot be read")
    return Failure("Internal", message)


def failure_of_code(code: str, response: dict[str, Any], message: str) -> Failure:
    if code in CREDENTIALS:
        return Failure("InvalidCredentials", message)
    if code in FORBIDDEN:
        return Failure("Forbidden", message)
    if code in RATE_LIMITED:
        return Failure("RateLimited", message)
    if code in UNAVAILABLE or response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
        return Failure("Unavailable", message)
    # RunInstances has no code of its own for a type that does not exist.
    if code == "InvalidParameterValue" and "InstanceType" in message:
        return invalid("instanceType", message)
    if code == "IdempotentParameterMismatch":
        return Failure("AlreadyExists", message)
    for beginning, field in FIELDS.items():
        if code.startswith(beginning):
            return invalid(field, message)
    return Failure("Internal", message)


def code_of(error: botocore.exceptions.ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


class Cloud:
    """A region of an account that was confirmed."""

    def __init__(self, request: Request) -> None:
        self.settings, self.context, self.arguments = request.settings, request.context, request.arguments
        self.region = self.settings["region"]
        # The library reads them from the environment only, as far as exceptions are concerned.
        if self.context.get("proxy"):
            os.environ["HTTP_PROXY"] = os.environ["HTTPS_PROXY"] = self.context["proxy"]
            os.environ["NO_PROXY"] = ",".join(filter(None, [self.context.get("noProxy"), METADATA]))
        keys = [self.settings.get(name) for name in ("accessKeyID", "secretAccessKey", "sessionToken")]
        if any(keys) and not all(keys[:2]):
            # Otherwise the role of the machine would be used, which may be another account.
            raise Failure("InvalidCredentials", "accessKeyID and secretAccessKey have to be set both, or none of them")
        endpoint_url(self.settings)
        session = boto3.session.Session(*keys, region_name=self.region)
        # The caller repeats what failed: no attempts of its own.
        config = Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries={"total_max_attempts": 1})
        where = {"config": config, "endpoint_url": self.settings.get("endpointURL"), "verify": self.context.get("caBundle")}
        try:
            sts, self.ec2 = session.client("sts", **where), session.client("ec2", **where)
        except botocore.exceptions.InvalidRegionError as error:
            raise invalid("region", f"AWS: {error}") from None
        except ValueError:
            raise invalid("endpointURL", NO_URL) from None
        identity = sts.get_caller_identity()
        # In another region all instances would seem to be gone, so it is another account.
        self.account = f"{text_of(identity, 'Account')}/{self.region}"
        self.caller = text_of(identity, "Arn")
        request.confirm(self.account)

    def all(self, operation: str, key: str, **arguments: Any) -> list[dict[str, Any]]:
        """Returns all pages of a list."""
        pages = self.ec2.get_paginator(operation).paginate(**arguments)
        return [item for page in pages for item in list_of(page, key)]

    def servers(self, **arguments: Any) -> list[dict[str, Any]]:
        """Returns instances as EC2 has them. Those that are terminated are gone: EC2 shows them for about an hour."""
        reservations = self.all("describe_instances", "Reservations", **arguments)
        return [server for reservation in reservations for server in list_of(reservation, "Instances")]

    def server(self, asked: str) -> dict[str, Any]:
        """Returns the instance of an id."""
        if not re.fullmatch(r"i-[0-9a-f]{8}([0-9a-f]{9})?", asked):
            raise not_found("instance", asked)
        try:
            found = self.servers(InstanceIds=[asked])
        except botocore.exceptions.ClientError as error:
            if code_of(error) not in ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"):
                raise
            raise not_found("instance", asked) from None
        # EC2 answers with an error if it does not have it.
        if len(found) != 1 or found[0].get("InstanceId") != asked:
            raise Failure("Internal", f"AWS: an answer about something else than {asked}")
        if state_of(found[0]) == "terminated":
            raise not_found("instance", asked)
        return found[0]

    def zones(self) -> list[str]:
        zones = list_of(self.ec2.describe_availability_zones(), "AvailabilityZones")
        return [zone["ZoneName"] for zone in zones if zone.get("RegionName", self.region) == self.region]


def endpoint_url(settings: dict[str, str]) -> Optional[SplitResult]:
    """Returns the URL of all services, or nothing if they are those of AWS."""
    text = settings.get("endpointURL")
    if not text:
        return None
    # Messages of boto3 have the URL. A password in it is none of AWS.
    if re.search("//[^/?#]*@", text):
        raise invalid("endpointURL", "endpointURL has a user: AWS knows access keys only")
    try:
        url = urlsplit(text)
        # A port that is no number is an error when it is read.
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise invalid("endpointURL", NO_URL)
    return url


def text_of(answer: dict[str, Any], key: str) -> str:
    """Returns a text that AWS has to answer with."""
    text = answer.get(key)
    if not isinstance(text, str) or not text:
        raise Failure("Internal", f"AWS: an answer without {key}")
    return text


def list_of(answer: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Returns a list that AWS has to answer with: an answer without one is not an empty list."""
    found = answer.get(key)
    if not isinstance(found, list):
        raise Failure("Internal", f"AWS: an answer without {key}")
    return found


def state_of(server: dict[str, Any]) -> str:
    return server.get("State", {}).get("Name", "")


def tags_of(server: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in server.get("Tags", [])}


def addresses_of(server: dict[str, Any]) -> list[dict[str, str]]:
    """Returns the addresses as AWS's own cloud-controller-manager has them, in its order."""
    interfaces = [one for one in server.get("NetworkInterfaces", []) if one.get("Status") == "in-use"]
    interfaces.sort(key=lambda one: one.get("Attachment", {}).get("DeviceIndex", sys.maxsize))
    found = [("InternalIP", one.get("PrivateIpAddress")) for interface in interfaces for one in interface["PrivateIpAddresses"]]
    private = server.get("PrivateDnsName")
    found += [("ExternalIP", server.get("PublicIpAddress")), ("InternalDNS", private), ("Hostname", private)]
    found += [("ExternalDNS", server.get("PublicDnsName"))]
    return [{"type": kind, "address": address} for kind, address in found if address]


def instance_of(cloud: Cloud, server: dict[str, Any]) -> dict[str, Any]:
    """Returns an instance as the contract has it."""
    tags, zone = tags_of(server), server.get("Placement", {}).get("AvailabilityZone", "")
    states = {"shutting-down": "deleting"}
    known = ("pending", "running", "stopping", "stopped")
    state = state_of(server)
    created = server.get("LaunchTime")
    instance = {
        "id": text_of(server, "InstanceId"),
        "providerID": f"aws:///{zone}/{server['InstanceId']}",
        "name": tags.get(NAME, ""),
        "region": cloud.region,
        "zone": zone,
        "state": states.get(state, state if state in known else "unknown"),
        "image": server.get("ImageId", ""),
        "instanceType": server.get("InstanceType", ""),
        "addresses": addresses_of(server),
        "labels": {name: value for name, value in tags.items() if name != NAME and not name.startswith(MARKS)},
        "created": created.strftime("%Y-%m-%dT%H:%M:%SZ") if created else "",
    }
    instance.update({name: tags[tag] for name, tag in (("owner", OWNER), ("cluster", CLUSTER)) if tags.get(tag)})
    return instance


# --- Instances --------------------------------------------------------------------------------------------------------------


def instance_list(cloud: Cloud) -> dict[str, Any]:
    wanted = cloud.arguments
    demand_place(cloud)

    def fits(instance: dict[str, Any]) -> bool:
        return all(wanted.get(field) in (None, instance.get(field)) for field in ("region", "zone", "name", "owner")) and all(
            instance["labels"].get(name) == value for name, value in wanted.get("labels", {}).items()
        )

    instances = [instance_of(cloud, server) for server in cloud.servers() if state_of(server) != "terminated"]
    return {"instances": [instance for instance in instances if fits(instance)]}


def demand_place(cloud: Cloud) -> None:
    """Refuses a region or a zone that does not exist: with an empty list all instances would seem to be gone."""
    region, zone = cloud.arguments.get("region"), cloud.arguments.get("zone")
    if region and region != cloud.region:
        raise invalid("region", f"there is no region {region!r}: this account is of the region {cloud.region!r}")
    if zone and zone not in cloud.zones():
        raise invalid("zone", f"there is no zone {zone!r} in the region {cloud.region!r}")


def instance_show(cloud: Cloud) -> dict[str, Any]:
    if ("id" in cloud.arguments) == ("providerID" in cloud.arguments):
        raise invalid("arguments", "either id or providerID is needed")
    if "id" in cloud.arguments:
        return {"instance": instance_of(cloud, cloud.server(cloud.arguments["id"]))}
    provider_id = cloud.arguments["providerID"]
    parts = re.fullmatch(r"aws:///([a-z0-9-]+)/(i-[0-9a-f]+)", provider_id)
    # AWS's own cloud-controller-manager also reads others. A Node with one of them is not gone, and neither is one of another region.
    if parts is None:
        raise invalid("providerID", f"{provider_id!r} is not of this driver: it has to be aws:///ZONE/ID")
    if parts[1] not in cloud.zones():
        raise invalid("providerID", f"the zone of {provider_id!r} is not in the region {cloud.region!r}")
    try:
        instance = instance_of(cloud, cloud.server(parts[2]))
    except Failure as failure:
        if failure.answer["class"] != "NotFound":
            raise
        raise not_found("instance with the providerID", provider_id) from None
    if instance["providerID"] != provider_id:
        raise invalid("providerID", f"{parts[2]} is in the zone {instance['zone']!r}, and not in that of {provider_id!r}")
    return {"instance": instance}


def instance_create(cloud: Cloud) -> dict[str, Any]:
    check(cloud)
    server = existing(cloud) or make(cloud)
    return {"instance": instance_of(cloud, server)}


def check(cloud: Cloud) -> None:
    wanted = cloud.arguments
    for field in ("key", "name"):
        if not wanted.get(field):
            raise invalid(field, f"{field} is empty")
    if len(wanted["name"]) > 255:
        raise invalid("name", "name has to have at most 255 characters")
    for label, value in wanted.get("labels", {}).items():
        if label.startswith(MARKS) or label.lower().startswith("aws:") or label == NAME:
            raise invalid("labels", f"the tag {label!r} belongs to the driver or to AWS")
        if not (re.fullmatch(TAG + "{1,128}", label) and re.fullmatch(TAG + "{0,256}", value)):
            raise invalid("labels", f"EC2 takes no tag {label!r} with the value {value!r}")
    if len(base64.b64decode(wanted.get("userData", ""))) > USER_DATA_BYTES:
        raise invalid("userData", f"EC2 takes at most {USER_DATA_BYTES} bytes of user data")
    if not (wanted.get("image") or cloud.settings.get("image")):
        raise invalid("image", "neither the request nor the setting image has an AMI")
    demand_place(cloud)


def existing(cloud: Cloud) -> Optional[dict[str, Any]]:
    """Returns the instance that an earlier create with the same key has made."""
    wanted = cloud.arguments
    servers = [server for server in cloud.servers() if state_of(server) != "terminated"]
    of_key = [server for server in servers if tags_of(server).get(OWNER) == wanted["key"]]
    for server in of_key:
        tags = tags_of(server)
        if state_of(server) == "shutting-down":
            continue
        if tags.get(SPEC) == wanted.get("digest") and tags.get(NAME) == wanted["name"]:
            return server
        raise Failure("AlreadyExists", f"the instance {server['InstanceId']} has the same key, and was made of something else")
    if of_key:
        raise Failure("Unavailable", f"the instance {of_key[0]['InstanceId']} with the same key is still being deleted")
    for server in servers:
        if tags_of(server).get(NAME) == wanted["name"] and state_of(server) != "shutting-down":
            raise Failure("AlreadyExists", f"the instance {server['InstanceId']} has the same name, and not the same key")
    return None


def make(cloud: Cloud) -> dict[str, Any]:
    """Makes the instance. Client tokens are used in an order that every create has, until one is of no deleted instance."""
    request = run_request(cloud)
    for generation in range(GENERATIONS):
        token = hashlib.sha256(f"{cloud.arguments['key']}\0{generation}".encode()).hexdigest()
        made = list_of(cloud.ec2.run_instances(**request, ClientToken=token), "Instances")
        if len(made) != 1:
            raise Failure("Internal", f"AWS: {len(made)} instances were made instead of one")
        server = made[0]
        try:
            # What it answers with may be the state at the time of the first request with this token.
            shown = cloud.servers(InstanceIds=[server["InstanceId"]])
            server = shown[0] if shown else server
        except botocore.exceptions.ClientError as error:
            if code_of(error) != "InvalidInstanceID.NotFound":
                raise after(failure_of(error), server) from None
            # A new instance may take seconds to be seen. An old one is gone: EC2 remembers its token for longer.
            if server["LaunchTime"] < datetime.now(timezone.utc) - SEEN_AFTER:
                continue
        except ERRORS as error:
            raise after(failure_of(error), server) from None
        if state_of(server) not in ("shutting-down", "terminated"):
            return server
    raise Failure("AlreadyExists", f"the key was used for {GENERATIONS} instances that were deleted: use another one")


def after(failure: Failure, server: dict[str, Any]) -> Failure:
    """Adds the instance that was made before a failure."""
    failure.answer["instance"] = server["InstanceId"]
    return failure


def run_request(cloud: Cloud) -> dict[str, Any]:
    wanted, settings = cloud.arguments, cloud.settings
    marks = {NAME: wanted["name"], OWNER: wanted["key"], CLUSTER: wanted.get("cluster", ""), SPEC: wanted.get("digest", "")}
    labels = {**wanted.get("labels", {}), **{name: value for name, value in marks.items() if value}}
    tags = [{"Key": name, "Value": value} for name, value in labels.items()]
    request: dict[str, Any] = {
        "ImageId": wanted.get("image") or settings["image"],
        "InstanceType": wanted.get("instanceType") or settings["instanceType"],
        "MinCount": 1,
        "MaxCount": 1,
        # boto3 encodes it.
        "UserData": base64.b64decode(wanted.get("userData", "")),
        "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
    }
    networks = wanted.get("networks") or [name for name in [settings.get("subnet")] if name]
    groups = [group for group in settings.get("securityGroups", "").split(",") if group]
    more = {"Groups": groups} if groups else {}
    if len(networks) > 1:
        request["NetworkInterfaces"] = [
            {"DeviceIndex": index, "SubnetId": subnet, **more} for index, subnet in enumerate(networks)
        ]
    else:
        if networks:
            request["SubnetId"] = networks[0]
        if groups:
            request["SecurityGroupIds"] = groups
    if wanted.get("zone"):
        request["Placement"] = {"AvailabilityZone": wanted["zone"]}
    return request


def own_server(cloud: Cloud) -> dict[str, Any]:
    server = cloud.server(cloud.arguments.get("id", ""))
    if tags_of(server).get(OWNER) is None:
        raise Failure("Forbidden", f"others have made {server['InstanceId']}: this driver changes only its own instances")
    return server


def instance_start(cloud: Cloud) -> dict[str, Any]:
    server = own_server(cloud)
    if state_of(server) not in ("pending", "running"):
        cloud.ec2.start_instances(InstanceIds=[server["InstanceId"]])
    return {}


def instance_stop(cloud: Cloud) -> dict[str, Any]:
    server = own_server(cloud)
    if state_of(server) not in ("stopping", "stopped"):
        cloud.ec2.stop_instances(InstanceIds=[server["InstanceId"]])
    return {}


def instance_delete(cloud: Cloud) -> dict[str, Any]:
    """Terminates it, and waits until it is gone, for as long as the caller does."""
    limit = cloud.context.get("timeoutSeconds") or 0
    end = time.monotonic() + limit * 0.8 if limit else None
    identity = cloud.arguments.get("id", "")
    try:
        server = own_server(cloud)
        if state_of(server) != "shutting-down":
            cloud.ec2.terminate_instances(InstanceIds=[identity])
        while cloud.server(identity):
            if end and time.monotonic() > end:
                raise Failure("Timeout", f"{identity} is still shutting down: delete it again")
            time.sleep(1)
    except Failure as failure:
        if failure.answer["class"] != "NotFound":
            raise
    return {}


# --- Account, places and inventory ------------------------------------------------------------------------------------------


def account_show(cloud: Cloud) -> dict[str, Any]:
    return {"id": cloud.account, "name": cloud.caller, "subAccounts": []}


def verify_settings(cloud: Cloud) -> dict[str, Any]:
    """Looks up what the settings name: EC2 answers with an error if it is not there."""
    settings, ec2 = cloud.settings, cloud.ec2
    looked_up = (
        ("image", lambda name: ec2.describe_images(ImageIds=[name])["Images"]),
        ("instanceType", lambda name: ec2.describe_instance_types(InstanceTypes=[name])["InstanceTypes"]),
        ("subnet", lambda name: ec2.describe_subnets(SubnetIds=[name])["Subnets"]),
        ("securityGroups", lambda names: ec2.describe_security_groups(GroupIds=names.split(","))["SecurityGroups"]),
    )
    for name, look_up in looked_up:
        try:
            if settings.get(name) and not look_up(settings[name]):
                raise invalid(name, f"there is no {settings[name]!r} in the region {cloud.region!r}")
        except botocore.exceptions.ClientError as error:
            if not code_of(error).startswith("Invalid"):
                raise
            raise invalid(name, f"AWS: {error}") from None
    return {}


def region_list(cloud: Cloud) -> dict[str, Any]:
    return {"regions": [{"id": cloud.region, "name": cloud.region}]}


def zone_list(cloud: Cloud) -> dict[str, Any]:
    demand_place(cloud)
    return {"zones": [{"id": zone, "name": zone, "region": cloud.region} for zone in cloud.zones()]}


def resource(cloud: Cloud, identity: str, details: dict[str, Any]) -> dict[str, Any]:
    texts = {name: str(value) for name, value in details.items() if value not in (None, "")}
    return {"id": identity, "name": identity, "region": cloud.region, "details": texts}


def network_list(cloud: Cloud) -> dict[str, Any]:
    demand_place(cloud)
    subnets = cloud.all("describe_subnets", "Subnets")
    details = {"vpc": "VpcId", "zone": "AvailabilityZone", "addresses": "CidrBlock"}
    return {
        "resources": [
            resource(cloud, text_of(subnet, "SubnetId"), {name: subnet.get(key) for name, key in details.items()})
            for subnet in subnets
        ]
    }


def image_list(cloud: Cloud) -> dict[str, Any]:
    """The AMIs of the account itself: there are tens of thousands of others."""
    demand_place(cloud)
    images = cloud.all("describe_images", "Images", Owners=["self"])
    return {
        "resources": [
            resource(cloud, text_of(image, "ImageId"), {"name": image.get("Name"), "architecture": image.get("Architecture")})
            for image in images
        ]
    }


# --- Operations -------------------------------------------------------------------------------------------------------------


def describe(_: Request) -> dict[str, Any]:
    return DESCRIPTION


def endpoint(request: Request) -> dict[str, Any]:
    """The place of endpointURL. Without it, each service of AWS has its own; with TLS, no other place has the certificate."""
    through = fields(request.arguments.get("through", {}), {"tcp", "unix"}, "through")
    settings = dict(request.settings)
    url = endpoint_url(settings)
    if url is None or url.scheme != "http":
        return {"endpoint": None, "settings": settings}
    if "tcp" in through:
        place = fields(through["tcp"], {"host", "port"}, "tcp")
        settings["endpointURL"] = urlunsplit(url._replace(netloc=f"{place['host']}:{place['port']}"))
    return {"endpoint": {"tcp": {"host": url.hostname, "port": url.port or 80}}, "settings": settings}


def in_cloud(perform: Callable[[Cloud], dict[str, Any]], is_change: bool = False) -> Callable[[Request], dict[str, Any]]:
    """An operation that asks AWS."""

    def operation(request: Request) -> dict[str, Any]:
        try:
            cloud = Cloud(request)
            if is_change:
                request.changes()
            return perform(cloud)
        except ERRORS as error:
            raise failure_of(error) from None

    return operation


CREATE = {
    "key", "cluster", "name", "region", "zone", "image", "instanceType", "userData", "networks", "labels", "options", "digest",
}
OPERATIONS: dict[Any, tuple[Callable[[Request], dict[str, Any]], set[str]]] = {
    "describe": (describe, set()),
    "endpoint": (endpoint, {"through"}),
    "account-show": (in_cloud(account_show), set()),
    "verify-settings": (in_cloud(verify_settings), set()),
    "region-list": (in_cloud(region_list), set()),
    "zone-list": (in_cloud(zone_list), {"region"}),
    "instance-list": (in_cloud(instance_list), {"region", "zone", "name", "owner", "labels"}),
    "instance-show": (in_cloud(instance_show), {"id", "providerID"}),
    "instance-create": (in_cloud(instance_create, is_change=True), CREATE),
    "instance-delete": (in_cloud(instance_delete, is_change=True), {"id"}),
    "instance-start": (in_cloud(instance_start, is_change=True), {"id"}),
    "instance-stop": (in_cloud(instance_stop, is_change=True), {"id"}),
    "network-list": (in_cloud(network_list), {"region"}),
    "image-list": (in_cloud(image_list), {"region"}),
}


if __name__ == "__main__":
    json.dump(answer_to(sys.stdin.buffer.read()), sys.stdout)
