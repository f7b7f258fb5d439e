//! The fake cloud of both programs: one file, in the form of the driver fake. The library reads the file; ours asks a server of the
//! driver fake that does.

use std::{fs, io::Write, path::PathBuf, sync::Arc};

use anyhow::Result;
use ccm_driver_fake::cloud::{Cloud as Served, Server};
use serde_json::{Value, json};

use super::cases::{Case, Instance};

/// The id of the account.
const ACCOUNT: &str = "acct-0123456789abcdef";
/// The token that both programs have.
const TOKEN: &str = "fake-token";

/// The file of a cloud.
pub(super) struct Cloud {
    pub(super) file: PathBuf,
    server: Server,
    account: Value,
    instances: Vec<Owned>,
    made: u64,
}

/// An instance, and the Node that it belongs to.
struct Owned {
    node: String,
    id: String,
    instance: Instance,
}

impl Cloud {
    /// A cloud in a file, with one instance that is no Node's.
    pub(super) fn new(file: PathBuf) -> Result<Self> {
        let account = json!({"id": ACCOUNT, "name": "fake", "token": TOKEN});
        let server = Server::start(Arc::new(Served::in_file(&file)))?;
        let mut cloud = Self { file, server, account, instances: Vec::new(), made: 0 };
        cloud.set("", vec![Instance::named("bystander")]);
        cloud.write()?;
        Ok(cloud)
    }

    /// The host and the port of its server.
    pub(super) fn endpoint(&self) -> String {
        self.server.address().to_string()
    }

    /// Replaces the instances of a Node, which keep their ids. Returns the id of the first one, or of none.
    pub(super) fn set(&mut self, node: &str, instances: Vec<Instance>) -> String {
        let mut ids = Vec::new();
        self.instances.retain(|one| {
            let is_other = one.node != node;
            if !is_other {
                ids.push(one.id.clone());
            }
            is_other
        });
        let mut ids = ids.into_iter();
        let mut first = None;
        for instance in instances {
            let id = ids.next().unwrap_or_else(|| self.new_id());
            first.get_or_insert_with(|| id.clone());
            self.instances.push(Owned { node: node.to_owned(), id, instance });
        }
        first.unwrap_or_else(|| self.new_id())
    }

    /// Adds a case, and returns its Node.
    pub(super) fn add(&mut self, case: &Case) -> Value {
        let id = self.set(case.name, case.instances.clone());
        case.node(&id)
    }

    fn new_id(&mut self) -> String {
        self.made += 1;
        format!("i-{:016x}", self.made)
    }

    /// Writes the file as it is now.
    pub(super) fn write(&self) -> Result<()> {
        let instances: Vec<Value> = self.instances.iter().map(|one| one.instance.json(&one.id)).collect();
        self.replace(&content(&self.account, &instances))
    }

    /// Lets the cloud refuse the token.
    pub(super) fn refuse(&self) -> Result<()> {
        let mut account = self.account.clone();
        account["token"] = json!("another-token");
        self.replace(&content(&account, &[]))
    }

    /// Lets the cloud answer what nobody understands.
    pub(super) fn answer_garbage(&self) -> Result<()> {
        self.replace("{\"account\": ")
    }

    /// Replaces the account by another one. Its only instance has the name of a Node that waits.
    pub(super) fn become_another(&self) -> Result<()> {
        let mut account = self.account.clone();
        account["id"] = json!("acct-fedcba9876543210");
        let instance = Instance::named("another-new").json("i-00000000000000ff");
        self.replace(&content(&account, &[instance]))
    }

    /// Shows an account without any instance.
    pub(super) fn empty(&self) -> Result<()> {
        self.replace(&content(&self.account, &[]))
    }

    /// A reader sees the old content or the new one.
    fn replace(&self, text: &str) -> Result<()> {
        let next = self.file.with_extension("next");
        fs::File::create(&next)?.write_all(text.as_bytes())?;
        Ok(fs::rename(next, &self.file)?)
    }
}

/// The content of the file.
fn content(account: &Value, instances: &[Value]) -> String {
    json!({
        "account": account,
        "regions": [{"id": "north", "name": "North"}, {"id": "south", "name": "South"}],
        "zones": [
            {"id": "north-1", "name": "North 1", "region": "north"},
            {"id": "south-1", "name": "South 1", "region": "south"},
        ],
        "networks": [], "hosts": [], "storages": [], "images": [], "instanceTypes": [],
        "instances": instances,
    })
    .to_string()
}
