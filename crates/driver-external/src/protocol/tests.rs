use std::{collections::BTreeSet, fs};

use ccm_drivers::contract::{Address, AddressKind, Marks, State, SubAccount};
use schemars::schema_for;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn page(name: &str) -> String {
    format!("{}/../../docs/drivers/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_documented_schemas_are_current() {
    for (name, schema) in [("request", schema_for!(Request)), ("answer", schema_for!(schema::Answer))] {
        let path = page(&format!("protocol/{name}.schema.json"));
        let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            fs::create_dir_all(page("protocol")).unwrap();
            fs::write(&path, &schema).unwrap();
        }
        let documented = fs::read_to_string(&path).unwrap_or_default();
        assert!(schema == documented, "{path} is out of date: run `make generate`");
    }
}

/// What one type writes, the other one reads and writes again.
fn alike<T: DeserializeOwned + Serialize>(value: &impl Serialize) {
    let written = serde_json::to_value(value).unwrap();
    let read: T = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), written);
}

#[test]
fn the_schemas_are_of_the_types_of_the_contract() {
    let text = || "x".to_owned();
    let labels = || BTreeMap::from([(text(), text())]);
    for state in [State::Pending, State::Running, State::Stopping, State::Stopped, State::Deleting, State::Unknown] {
        let kinds = [
            AddressKind::Hostname,
            AddressKind::InternalIP,
            AddressKind::ExternalIP,
            AddressKind::InternalDNS,
            AddressKind::ExternalDNS,
        ];
        let instance = Instance {
            id: text(),
            provider_id: text(),
            name: text(),
            region: text(),
            zone: text(),
            state,
            image: text(),
            instance_type: text(),
            addresses: kinds.map(|kind| Address { kind, address: text() }).to_vec(),
            labels: labels(),
            marks: Marks { owner: Some(text()), cluster: Some(text()) },
            created: text(),
        };
        alike::<schema::Instance>(&instance);
        alike::<schema::Instance>(&Instance { marks: Marks::default(), ..instance });
    }
    alike::<schema::Region>(&Region { id: text(), name: text() });
    alike::<schema::Zone>(&Zone { id: text(), name: text(), region: text() });
    alike::<schema::Resource>(&Resource { id: text(), name: text(), region: text(), details: labels() });
    let sub_accounts = vec![SubAccount { id: text(), name: text() }];
    alike::<schema::Account>(&AccountInfo { id: text(), name: text(), sub_accounts });
    alike::<schema::Usage>(&Usage {
        processor_seconds: Some(1.5),
        memory_bytes: Some(1),
        memory_limit_bytes: Some(2),
        network_received_bytes: Some(3),
        network_sent_bytes: Some(4),
        disk_read_bytes: Some(5),
        disk_written_bytes: None,
    });
    alike::<schema::CommandOutput>(&CommandOutput { exit_code: 1, stdout: text(), stderr: text() });
    for kind in [Kind::Text, Kind::Boolean, Kind::Integer, Kind::Duration, Kind::List, Kind::Path] {
        alike::<schema::Kind>(&kind);
    }
    let classes = serde_json::to_value(schema_for!(schema::Class)).unwrap();
    let classes: Vec<_> =
        classes["oneOf"].as_array().unwrap().iter().map(|one| one["const"].as_str().unwrap()).collect();
    assert_eq!(classes, ErrorKind::NAMES.map(|(name, _)| name));
}

#[test]
fn each_class_of_errors_has_its_name() {
    for (class, _) in ErrorKind::NAMES {
        let failure = Failure { class: class.to_owned(), field: Some("image".to_owned()), ..Failure::default() };
        assert_eq!(failure.error(String::new()).unwrap().kind.name(), class);
    }
    let negative = json!({"class": "RateLimited", "message": "", "retryAfterSeconds": -1});
    assert!(serde_json::from_value::<Failure>(negative).is_err());
}

/// The operations, as the schema has them.
fn operations() -> BTreeSet<String> {
    let schema = serde_json::to_value(schema_for!(Call)).unwrap();
    let name = |one: &Value| one["properties"]["operation"]["const"].as_str().unwrap().to_owned();
    schema["oneOf"].as_array().unwrap().iter().map(name).collect()
}

/// The JSON documents of a section of the page.
fn examples(section: &str) -> Vec<Value> {
    let blocks = section.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(|block| serde_json::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}"))).collect()
}

fn read<T: Outcome>(result: &Value) {
    let result = serde_json::from_value::<T>(result.clone());
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_page_has_a_valid_example_of_each_operation() {
    let page = fs::read_to_string(page("protocol.md")).unwrap();
    let sections = page.split("\n### `").skip(1).map(|rest| rest.split_once("`\n").unwrap());
    let sections: BTreeMap<_, _> = sections.map(|(name, rest)| (name, rest.split("\n## ").next().unwrap())).collect();
    assert_eq!(sections.keys().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), operations());
    for (operation, section) in sections {
        let all = examples(section);
        let [request, answer] = &all[..] else { panic!("{operation} has {} examples", all.len()) };
        let read_request: Request = serde_json::from_value(request.clone()).unwrap();
        assert_eq!(read_request.call.name(), operation);
        assert_eq!(&serde_json::to_value(&read_request).unwrap(), request, "{operation}: it has another field");
        assert_eq!((&request["protocolVersion"], &answer["protocolVersion"]), (&json!(1), &json!(1)), "{operation}");
        let has_account = !["describe", "endpoint"].contains(&operation);
        assert_eq!(answer["account"].is_string(), has_account, "{operation}");
        assert_eq!(request["context"]["timeoutSeconds"].is_u64(), operation != "describe");
        let result = &answer["result"];
        match read_request.call {
            Call::Describe => read::<Described>(result),
            Call::Endpoint { .. } => read::<Connects>(result),
            Call::AccountShow {} => read::<AccountInfo>(result),
            Call::RegionList {} => read::<Regions>(result),
            Call::ZoneList { .. } => read::<Zones>(result),
            Call::InstanceList { .. } => read::<Instances>(result),
            Call::InstanceShow(_) | Call::InstanceCreate(_) => read::<One>(result),
            Call::VerifySettings {}
            | Call::InstanceDelete { .. }
            | Call::InstanceStart { .. }
            | Call::InstanceStop { .. } => read::<Done>(result),
            Call::NetworkList { .. }
            | Call::HostList { .. }
            | Call::StorageList { .. }
            | Call::ImageList { .. }
            | Call::InstanceTypeList { .. } => read::<Resources>(result),
            Call::InstanceMetrics { .. } => read::<Usage>(result),
            Call::InstanceRun { .. } => read::<CommandOutput>(result),
        }
    }
    let errors = page.split("\n## Errors\n").nth(1).unwrap().split("\n## ").next().unwrap();
    for error in examples(errors) {
        let failure: Failure = serde_json::from_value(error["error"].clone()).unwrap();
        failure.error(String::new()).unwrap();
    }
    for (class, _) in ErrorKind::NAMES {
        assert!(errors.contains(&format!("| `{class}` |")), "{class}");
    }
}

#[test]
fn a_request_to_create_has_the_digest_and_no_empty_field() {
    let spec = ccm_drivers::contract::InstanceSpec {
        key: "uid".to_owned(),
        name: "worker-1".to_owned(),
        user_data: ccm_drivers::contract::UserData::new(b"#cloud-config\n".to_vec()),
        ..ccm_drivers::contract::InstanceSpec::default()
    };
    let call = Call::InstanceCreate(Box::new((&spec).into()));
    assert_eq!(
        serde_json::to_value(&call).unwrap(),
        json!({"operation": "instance-create", "arguments": {
            "key": "uid", "name": "worker-1", "userData": "I2Nsb3VkLWNvbmZpZwo=", "networks": [], "labels": {}, "options": {},
            "digest": spec.digest(),
        }})
    );
    assert!(!format!("{call:?}").contains("I2Nsb3Vk"));
}
