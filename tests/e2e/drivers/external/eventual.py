"""`eventual.py DRIVER`: the driver for AWS with answers of EC2 that moto does not give."""

import importlib.util
import sys
from datetime import datetime, timedelta, timezone

import botocore.exceptions

spec = importlib.util.spec_from_file_location("driver", sys.argv[1])
driver = importlib.util.module_from_spec(spec)
spec.loader.exec_module(driver)

NOW = datetime.now(timezone.utc)
ONE, OTHER = "i-0123456789abcdef0", "i-0123456789abcdef1"


def failure(code):
    return botocore.exceptions.ClientError({"Error": {"Code": code, "Message": code}}, "DescribeInstances")


def server(identity=ONE, state="running", minutes=0, **tags):
    marks = {"Name": "worker-1", driver.OWNER: "k", driver.SPEC: "d", **tags}
    return {
        "InstanceId": identity, "State": {"Name": state}, "LaunchTime": NOW - timedelta(minutes=minutes),
        "Placement": {"AvailabilityZone": "eu-central-1a"}, "Tags": [{"Key": key, "Value": value} for key, value in marks.items()],
    }


class EC2:
    """Lists some servers, shows others by their ids, and makes others."""

    def __init__(self, listed=(), shown=(), made=()):
        self.listed, self.shown, self.made, self.tokens = listed, shown, list(made), []

    def get_paginator(self, _):
        return self

    def paginate(self, InstanceIds=None):
        if isinstance(self.shown, Exception) and InstanceIds:
            raise self.shown
        found = [one for one in self.shown if one["InstanceId"] in InstanceIds] if InstanceIds else self.listed
        return [{"Reservations": [{"Instances": [one]}]} for one in found]

    def describe_availability_zones(self):
        return {"AvailabilityZones": [{"ZoneName": name, "RegionName": "eu-central-1"} for name in ("eu-central-1a", "eu-central-1b")]}

    def run_instances(self, ClientToken, **_):
        self.tokens.append(ClientToken)
        return {"Instances": [self.made[len(self.tokens) - 1]]}


def perform(operation, ec2, **arguments):
    """Returns the result, or the class of the error."""
    cloud = driver.Cloud.__new__(driver.Cloud)
    cloud.region, cloud.settings, cloud.context, cloud.arguments = "eu-central-1", {"image": "ami-1", "instanceType": "t"}, {}, arguments
    cloud.ec2 = ec2
    try:
        return operation(cloud)
    except driver.Failure as failed:
        return failed.answer["class"]


def create(ec2):
    made = perform(driver.instance_create, ec2, key="k", name="worker-1", digest="d")
    return made if isinstance(made, str) else made["instance"]["id"]


def show(ec2, **arguments):
    shown = perform(driver.instance_show, ec2, **arguments)
    return shown if isinstance(shown, str) else shown["instance"]["id"]


GONE = failure("InvalidInstanceID.NotFound")
# A new instance may not be seen yet.
assert create(EC2(shown=GONE, made=[server()])) == ONE
# EC2 knows the token of an instance that it does not show any more.
again = EC2(shown=GONE, made=[server(minutes=120), server(OTHER)])
assert create(again) == OTHER and len(set(again.tokens)) == 2
# The answer of a repeated request is that of the first one.
ended = EC2(shown=[server(state="terminated"), server(OTHER)], made=[server(state="pending"), server(OTHER)])
assert create(ended) == OTHER
# Others may take the name later, and an instance with the key may still be shutting down.
assert create(EC2(listed=[server(OTHER, **{driver.OWNER: "other"}), server()])) == ONE
assert create(EC2(listed=[server(OTHER, state="shutting-down"), server()])) == ONE
assert create(EC2(listed=[server(OTHER, state="shutting-down")])) == "Unavailable"
assert create(EC2(listed=[server(OTHER, **{driver.OWNER: "other"})])) == "AlreadyExists"
assert create(EC2(listed=[server(**{driver.SPEC: "other"})])) == "AlreadyExists"

# Only EC2's own error says that there is no instance.
assert show(EC2(shown=[server()]), id=ONE) == ONE
assert show(EC2(shown=GONE), id=ONE) == "NotFound"
assert show(EC2(shown=[server(state="terminated")]), id=ONE) == "NotFound"
assert show(EC2(), id=ONE) == "Internal"
for provider, expected in (
    (f"aws:///eu-central-1a/{ONE}", ONE),
    (f"aws:///eu-central-1a/{OTHER}", "Internal"),
    (f"aws:///eu-central-1b/{ONE}", "InvalidArgument"),
    (f"aws:///us-east-1a/{ONE}", "InvalidArgument"),
    (f"aws:///{ONE}", "InvalidArgument"),
    (f"aws:////{ONE}", "InvalidArgument"),
    ("kind://worker-1", "InvalidArgument"),
):
    assert show(EC2(shown=[server()]), providerID=provider) == expected, provider
assert show(EC2(shown=GONE), providerID=f"aws:///eu-central-1a/{ONE}") == "NotFound"
assert show(EC2(), id=ONE, providerID=f"aws:///eu-central-1a/{ONE}") == "InvalidArgument"
assert show(EC2()) == "InvalidArgument"


def answer(settings, context=()):
    request = driver.Request({"region": "eu-central-1", **settings}, dict(context), {}, {})
    try:
        driver.Cloud(request)
    except driver.Failure as failed:
        return failed.answer
    except driver.ERRORS as error:
        return driver.failure_of(error).answer
    raise AssertionError(settings)


# Half of the credentials is not the role of the machine, and no message has a password.
KEYS = {"accessKeyID": "a", "secretAccessKey": "b"}
for half in KEYS:
    assert answer({half: "c"})["class"] == "InvalidCredentials"
for settings in ({"endpointURL": "http://user:hidden@127.0.0.1:1"}, {"endpointURL": "hidden"}, {"region": "a/b"}):
    refused = answer({**KEYS, **settings})
    assert refused["class"] == "InvalidArgument" and refused["field"] in settings and "hidden" not in str(refused), refused
# The role of this machine is not asked for by a proxy.
answer({**KEYS, "endpointURL": "http://127.0.0.1:1"}, {"proxy": "http://127.0.0.1:1", "noProxy": "example.com"}.items())
assert driver.os.environ["NO_PROXY"].startswith("example.com,169.254.169.254")
