"""Beside a libvirt of its own: `steps.py DRIVER` ends operations of the driver for libvirt before each of their calls of libvirt, and lets
others run in between."""

import importlib.util
import json
import os
import signal
import subprocess
import sys

SPEC = {
    "key": "k", "name": "worker-1", "digest": "d", "userData": "aGVsbG8=", "networks": [], "labels": {}, "options": {"memory": "32"},
}


def load(driver):
    spec = importlib.util.spec_from_file_location("driver", driver)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def child(driver, sign, number, operation, arguments):
    """Performs an operation, and sends a signal to itself before a call."""
    import libvirt

    loaded = load(driver)
    loaded.SHUTDOWN_SECONDS, loaded.OTHER_CREATE_SECONDS = 1, 0.5
    libvirt.registerErrorHandler(lambda *_: None, None)
    calls = 0

    def count(_frame, event, called):
        nonlocal calls
        if event == "c_call" and str(getattr(called, "__module__", "")).startswith("libvirtmod"):
            calls += 1
            if calls == number:
                os.kill(os.getpid(), sign)

    settings = {"uri": "qemu:///system", "net": "default", "pool": "default", "volName": "podvm-base.qcow2"}
    request = {"protocolVersion": 1, "operation": operation, "settings": settings, "arguments": arguments}
    sys.setprofile(count)
    answer = loaded.answer_to(json.dumps(request).encode())
    sys.setprofile(None)
    print(json.dumps({**answer, "calls": calls}))


def start(operation, arguments, sign=signal.SIGCONT, number=0):
    command = [sys.executable, "-I", "-B", __file__, sys.argv[1], str(int(sign)), str(number), operation, json.dumps(arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def perform(operation, arguments, *at):
    process = start(operation, arguments, *at)
    answer = process.communicate()[0]
    return json.loads(answer) if answer else None


def paused(operation, arguments, number):
    process = start(operation, arguments, signal.SIGSTOP, number)
    os.waitpid(process.pid, os.WUNTRACED)
    return process


def resumed(process):
    process.send_signal(signal.SIGCONT)
    return json.loads(process.communicate()[0])


def create(**other):
    return perform("instance-create", {**SPEC, **other})


def instances():
    return perform("instance-list", {})["result"]["instances"]


def virsh(*arguments, **more):
    command = ["virsh", "--quiet", "--connect", "qemu:///system", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def volumes():
    return sorted(line.split()[0] for line in virsh("vol-list", "default").splitlines())


BASES = ["other-base.qcow2", "podvm-base.qcow2"]


def demand_nothing(when):
    assert not instances() and volumes() == BASES, (when, instances(), volumes())


def delete_all():
    for one in instances():
        assert perform("instance-delete", {"id": one["id"]}).get("result") == {}
    demand_nothing("after a delete")


def the_same_again_completes_it():
    made = create()
    calls = made["calls"]
    for number in range(1, calls + 1):
        delete_all()
        assert perform("instance-create", SPEC, signal.SIGKILL, number) is None
        made = create()
        assert [one["state"] for one in instances()] == ["running"] and len(volumes()) == 4, (number, made, instances(), volumes())
    for number in range(1, perform("instance-delete", {"id": instances()[0]["id"]})["calls"] + 1):
        one = create()["result"]["instance"]["id"]
        perform("instance-delete", {"id": one}, signal.SIGKILL, number)
        left = [one["state"] for one in instances()]
        assert left in ([], ["running"], ["deleting"]), (number, left)
        if left == ["deleting"]:
            # It may have lost its disks.
            assert create()["error"]["class"] == "Unavailable"
        assert perform("instance-delete", {"id": one}).get("result") == {}, number
        demand_nothing(number)
    return calls


def a_delete_wins(calls):
    # While a create is stopped, its instance is deleted.
    for number in range(1, calls + 1):
        process = paused("instance-create", SPEC, number)
        seen = instances()
        for one in seen:
            assert perform("instance-delete", {"id": one["id"]}).get("result") == {}, number
        answer = resumed(process)
        assert answer.get("error", {}).get("class", "Unavailable") == "Unavailable", (number, answer)
        if seen:
            demand_nothing(number)
        delete_all()
    # While the delete of what a killed create has left is stopped, the create is repeated.
    number, done = 0, False
    while not done:
        number += 1
        perform("instance-create", SPEC, signal.SIGKILL, calls - 8)
        one = instances()[0]["id"]
        process = paused("instance-delete", {"id": one}, number)
        create()
        answer = resumed(process)
        assert answer.get("result") == {}, (number, answer)
        assert one not in [one["id"] for one in instances()], number
        done = answer["calls"] <= number
        delete_all()


def a_key_is_of_one_instance(calls):
    for number in range(9, calls, 4):
        process = paused("instance-create", {**SPEC, "name": "a"}, 8)
        perform("instance-create", {**SPEC, "name": "b"}, signal.SIGKILL, number)
        process.kill()
        process.communicate()
        create(name="a"), create(name="b"), create(name="a")
        assert len(instances()) == 1, (number, instances())
        delete_all()


def the_rest():
    one = create()["result"]["instance"]["id"]
    virsh("suspend", one)
    assert perform("instance-start", {"id": one}).get("result") == {} and instances()[0]["state"] == "running"
    virsh("suspend", one)
    assert perform("instance-stop", {"id": one}).get("result") == {} and instances()[0]["state"] == "stopped"
    # A copy is of whoever has made it.
    identity = "11111111-2222-4333-8444-555555555555"
    copy = virsh("dumpxml", "--inactive", one).replace("<name>worker-1", "<name>copy")
    copy = copy.replace(f"<uuid>{one}", f"<uuid>{identity}")
    virsh("define", "/dev/stdin", input="\n".join(line for line in copy.splitlines() if "<mac " not in line))
    assert perform("instance-delete", {"id": identity})["error"]["class"] == "Forbidden"
    virsh("undefine", identity)

    def refused(field, answer):
        assert answer["error"]["class"] == "InvalidArgument" and answer["error"]["field"] == field, answer

    refused("userData", create(key="other", name="other", userData="abc"))
    refused("image", create(key="other", name="other", image=f"{one}.qcow2"))
    for arguments in ({}, {"id": one, "providerID": f"libvirt:///{one}"}):
        refused("arguments", perform("instance-show", arguments))
    for provider in (f"libvirt://{one}", f"libvirt:///{one.upper()}", "kind://worker-1"):
        refused("providerID", perform("instance-show", {"providerID": provider}))
    assert [machine["id"] for machine in instances()] == [one]
    delete_all()


def a_uri_starts_no_program(driver):
    for uri in ("qemu:///system", "qemu+unix:///system?socket=/command", "qemu+ssh://root@host/system?keyfile=/key&known_hosts=/file"):
        driver.parsed_uri({"uri": uri})
    for uri in (
        "", "qemu:///session", "test:///default", "qemu://[::1/system", "qemu+ext:///system?socket=/a", "qemu+ssh://host/system?command=/a",
        "qemu+ssh://host/system?keyfile=/key;Command=/a", "qemu+ssh://host/system?x=&%63ommand=/a",
    ):
        try:
            driver.parsed_uri({"uri": uri})
        except driver.Failure as failure:
            assert failure.answer["field"] == "uri", uri
        else:
            raise AssertionError(uri)


def main():
    a_uri_starts_no_program(load(sys.argv[1]))
    calls = the_same_again_completes_it()
    a_delete_wins(calls)
    a_key_is_of_one_instance(calls)
    the_rest()


if len(sys.argv) > 2:
    child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], json.loads(sys.argv[5]))
else:
    main()
