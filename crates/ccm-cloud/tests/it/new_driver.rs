//! `new-driver`: what it writes is a whole driver.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use ccm_drivers::conformance::CHECKS;
use serde_json::{Value, json};

use crate::{Done, external::Driver, program, text};

const LANGUAGES: [&str; 2] = ["python", "sh"];

/// The results of `verify`, by the ids of checks, and its exit code.
fn verified(driver: &Driver, words: &[&str]) -> (Option<i32>, Vec<Value>) {
    let words: Vec<_> = ["verify", "--other-image", "fedora", "-o", "json"].iter().chain(words).copied().collect();
    let done = driver.run(&words);
    let report: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
    assert_eq!(report["left"], json!([]), "{report}");
    (done.code, report["results"].as_array().unwrap().clone())
}

#[test]
fn a_change_that_breaks_a_new_driver_fails_a_check() {
    for (language, from, to, check) in [
        ("python", "and instance[\"digest\"] == digest:", "and True:", "I1"),
        ("python", "if failure.error[\"class\"] != \"NotFound\":", "if True:", "I2"),
        ("python", "if instance[\"id\"] == instance_id:", "if instance[\"id\"].startswith(instance_id):", "I14"),
        ("python", "if wanted and wanted != account[\"id\"]:", "if False:", "I17"),
        ("sh", "and .digest == $arguments.digest)", ")", "I1"),
        ("sh", "[ \"$found\" != gone ]", "[ \"$found\" != gone ] || fail NotFound gone id x", "I2"),
        ("sh", "$token\" = \"$right\" ]", "$token\" != x ]", "I7"),
        ("sh", "($arguments.cluster // \"\") == \"\"", "$arguments.cluster // \"\" == \"\"", "I11"),
        ("sh", "(.networks // []) == []", ".networks // [] == []", "I19"),
        (
            "python",
            "if region in (\"\", one[\"region\"]) and zone in (\"\", one[\"id\"])]",
            "if region in (\"\", one[\"region\"])]",
            "I19",
        ),
    ] {
        let driver = Driver::new("my-cloud", language);
        driver.edit(from, to);
        let (code, results) = verified(&driver, &["--only", check]);
        assert!(code == Some(1) && results[0]["outcome"] == "failed", "{language} {from}: {results:?}");
    }
}

#[test]
fn the_commands_of_the_readme_are_right_and_each_check_passes_that_needs_no_endpoint() {
    for language in LANGUAGES {
        let driver = Driver::new("my-cloud2", language);
        let readme = fs::read_to_string(driver.folder.path().join("README.md")).unwrap();
        for left in ["template", "TEMPLATE", "DRIVER_"] {
            assert!(!readme.contains(left), "{readme}");
            assert!(!fs::read_to_string(driver.path()).unwrap().contains(left), "{left}");
        }
        assert!(readme.contains(&format!("./{}@sha256:{} drivers", driver.file, driver.digest())), "{readme}");
        let blocks: Vec<_> = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        let here = Path::new(env!("CARGO_BIN_EXE_ccm-cloud")).parent().unwrap();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", here.display());
        let mut shell = Command::new("sh");
        shell.args(["-euc", &blocks.concat()]).env_clear().env("PATH", path).current_dir(driver.folder.path());
        let done = Done::of(shell.output().unwrap());
        assert!(done.code == Some(0) && done.stdout.contains("worker-1"), "{done:?}");
        for check in &CHECKS {
            let row = done.stdout.lines().find(|row| row.starts_with(&format!("{} ", check.id))).unwrap();
            let needs_endpoint = ["I5", "I8", "I12"].contains(&check.id);
            assert!(
                row.contains(if needs_endpoint { "  not run  with these settings" } else { "  passed" }),
                "{language}: {row}"
            );
        }
        let cloud: Value = serde_json::from_slice(&fs::read(driver.folder.path().join("cloud.json")).unwrap()).unwrap();
        assert_eq!(cloud["instances"], json!([]), "{language}");
    }
}

/// Keys that the script once took for its own words.
#[test]
fn an_instance_of_any_key_is_deleted() {
    let driver = Driver::new("my-cloud", "sh");
    for key in ["gone", "nobody", "foreign", "-n", "$(exit 1)", "'; exit 1; '"] {
        let key_flag = format!("--key={key}");
        let created = driver.run(&["instance-create", "--name", "worker-1", &key_flag, "-o", "json"]);
        let instance: Value = serde_json::from_str(&created.stdout).unwrap_or_else(|_| panic!("{key}: {created:?}"));
        let deleted = driver.run(&["instance-delete", instance["id"].as_str().unwrap()]);
        let left = driver.run(&["instance-list", "-o", "json"]);
        assert_eq!((deleted.code, left.stdout.trim()), (Some(0), "[]"), "{key}: {deleted:?}");
    }
}

/// The answer of a driver to a request, as the protocol has it, without the program in between.
fn answer(driver: &Driver, request: &str) -> (Option<i32>, String) {
    let mut child = Command::new(driver.path())
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn what_a_new_driver_does_not_understand_it_refuses() {
    for language in LANGUAGES {
        let driver = Driver::new("my-cloud", language);
        let good = json!({
            "protocolVersion": 1, "operation": "zone-list",
            "context": {"timeoutSeconds": 30, "readOnly": false, "proxy": "http://p", "noProxy": "x", "caBundle": "/x"},
            "settings": {"file": driver.folder.path().join("cloud.json"), "token": "change-me"},
            "arguments": {"region": "north"},
        });
        let asked = |request: &Value| {
            let (code, answer) = answer(&driver, &request.to_string());
            assert_eq!(code, Some(0), "{language}: {request}: {answer}");
            serde_json::from_str::<Value>(&answer).unwrap()
        };
        assert!(asked(&good)["result"]["zones"][0]["region"] == "north" && asked(&good)["account"].is_string());
        for place in ["", "/context", "/settings", "/arguments"] {
            let mut request = good.clone();
            request.pointer_mut(place).unwrap()["other"] = json!("x");
            let error = asked(&request)["error"].clone();
            assert!(error["class"] == "InvalidArgument" && error["field"] == "other", "{language}: {error}");
        }
        for (field, value) in [("operation", "zone-burn"), ("operation", "account_show"), ("operation", "")] {
            let mut request = good.clone();
            request[field] = json!(value);
            request["arguments"] = json!({});
            assert_eq!(asked(&request)["error"]["class"], "NotSupported", "{language}: {value:?}");
        }
        for version in [json!(0), json!(2), json!("1"), json!(null)] {
            let mut request = good.clone();
            request["protocolVersion"] = version;
            assert_eq!(asked(&request)["error"]["class"], "NotSupported", "{language}: {request}");
        }
        let mut request = good.clone();
        request["operation"] = json!("instance-delete");
        request["arguments"] = json!({});
        assert_eq!(asked(&request)["error"]["class"], "InvalidArgument", "{language}");
        request["arguments"] = json!({"id": "i"});
        request["context"]["readOnly"] = json!(true);
        assert_eq!(asked(&request)["error"]["class"], "ReadOnly", "{language}");
        request["context"]["accountID"] = json!("another");
        assert_eq!(asked(&request)["error"]["class"], "InvalidCredentials", "{language}");
        let mut request = good.clone();
        request["operation"] = json!("instance-show");
        for (provider_id, class) in [
            ("my-cloud://i-1", "NotFound"),
            ("my-cloud://", "NotFound"),
            ("aws:///z/i-1", "InvalidArgument"),
            ("my-cloud", "InvalidArgument"),
            ("", "InvalidArgument"),
        ] {
            request["arguments"] = json!({ "providerID": provider_id });
            let error = asked(&request)["error"].clone();
            assert_eq!(error["class"], class, "{language}: {provider_id}: {error}");
            assert_eq!(error["field"] == "providerID", class == "InvalidArgument", "{language}: {error}");
        }
        // What is no request, and a cloud that cannot be read, is no answer.
        for text in ["", "{", "[]", "{\"protocolVersion\":1"] {
            let (code, answer) = answer(&driver, text);
            assert!(code != Some(0) && answer.is_empty(), "{language}: {text:?}: {code:?} {answer}");
        }
        fs::write(driver.folder.path().join("cloud.json"), "{").unwrap();
        let (code, answer) = answer(&driver, &good.to_string());
        assert!(code != Some(0) && answer.is_empty(), "{language}: {code:?} {answer}");
    }
}

#[test]
fn nothing_is_overwritten_and_a_name_has_to_be_free() {
    let driver = Driver::new("my-cloud", "sh");
    let run = |name: &str, folder: &Path| {
        let words = ["new-driver", name, "--language", "sh", "--folder", text(folder)];
        Done::of(program().args(words).output().unwrap())
    };
    let before = fs::read(driver.path()).unwrap();
    assert!(run("my-cloud", driver.folder.path()).bad(2).contains("exists and is not an empty folder"));
    assert!(run("my-cloud", &driver.path()).bad(2).contains("exists and is not an empty folder"));
    assert_eq!(fs::read(driver.path()).unwrap(), before);
    let none = driver.folder.path().join("none");
    for (name, reason) in [
        ("fake", "there is a driver or a command \"fake\""),
        ("drivers", "there is a driver or a command \"drivers\""),
        ("My", "a name has lowercase letters"),
        ("../up", "a name has lowercase letters"),
        ("", "a name has lowercase letters"),
    ] {
        assert!(run(name, &none).bad(2).contains(reason), "{name}");
    }
    assert!(!none.exists());
    // Without --folder it has the name of the driver.
    let parent = tempfile::tempdir().unwrap();
    let words = ["new-driver", "my-cloud", "--language", "python"];
    let printed = Done::of(program().args(words).current_dir(parent.path()).output().unwrap()).good();
    assert!(printed.contains("my-cloud/my-cloud.py") && printed.contains("cd my-cloud"), "{printed}");
    let mode = fs::metadata(parent.path().join("my-cloud/my-cloud.py")).unwrap().permissions().mode();
    assert!(mode & 0o100 != 0 && mode & 0o022 == 0, "{mode:o}");
}

/// Runs an example in Python with a request, and returns the error that it answers with.
fn refused(example: &str, python: &[&str], request: &Value) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/drivers").join(example);
    let mut command = Command::new("python3");
    command.arg("-I").args(python).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut driver = command.spawn().unwrap();
    driver.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    let output = driver.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["error"].clone()
}

#[test]
fn the_examples_in_python_say_which_module_they_lack() {
    let describe = json!({"protocolVersion": 1, "operation": "describe"});
    for (example, module, package) in
        [("aws/aws.py", "boto3", "python3-boto3"), ("libvirt/libvirt.py", "libvirt", "python3-libvirt")]
    {
        // Without what is installed besides Python.
        let error = refused(example, &["-S"], &describe);
        assert_eq!(error["class"], "Internal");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("No module named '{module}': install ")), "{message}");
        assert!(message.contains(package) && message.contains("first line"), "{message}");
    }
}

/// Runs a driver without AWS's client, which is not asked for anything.
const WITHOUT_BOTO3: &str = "
import runpy, sys
from unittest.mock import MagicMock
for name in 'boto3', 'botocore', 'botocore.config', 'botocore.exceptions', 'botocore.parsers':
    sys.modules[name] = MagicMock()
runpy.run_path(sys.argv[1], run_name='__main__')
";

#[test]
fn the_example_for_aws_refuses_what_is_no_url() {
    let error_of = |url: &str| {
        let settings = json!({"region": "us-east-1", "endpointURL": url});
        let request = json!({"protocolVersion": 1, "operation": "endpoint", "settings": settings});
        refused("aws/aws.py", &["-c", WITHOUT_BOTO3], &request)
    };
    for url in ["", "http://127.0.0.1:5000", "https://ec2.example/path", "HTTP://[::1]"] {
        assert_eq!(error_of(url), Value::Null, "{url}");
    }
    for url in
        ["localhost:5000", "ec2.example", "ftp://ec2.example", "http://", "http://[", "http://a:b", "http://a:70000"]
    {
        let error = error_of(url);
        assert_eq!((&error["class"], &error["field"]), (&json!("InvalidArgument"), &json!("endpointURL")), "{url}");
        assert!(error["message"].as_str().unwrap().contains("such as http://127.0.0.1:5000"), "{error}");
    }
    let error = error_of("http://user:hidden@127.0.0.1:5000");
    assert!(error["field"] == "endpointURL" && !error.to_string().contains("hidden"), "{error}");
}

/// A driver is one file, so that each Python example has the protocol itself: a change of one belongs in the other.
#[test]
fn the_examples_in_python_read_the_protocol_alike() {
    let protocol = |example: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/drivers").join(example);
        let text = fs::read_to_string(file).unwrap();
        let (_, rest) = text.split_once("# --- The protocol ---").unwrap();
        rest.split_once("\n# --- ").unwrap().0.to_owned()
    };
    let aws = protocol("aws/aws.py");
    assert!(aws.contains("def answer_to(") && aws.contains("class Request:"), "{aws}");
    assert_eq!(aws, protocol("libvirt/libvirt.py"));
}
