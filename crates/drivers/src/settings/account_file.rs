//! A file of accounts (pure).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Deserialize;

use super::ACCOUNT_ID;
use crate::text::{
    Place, Problem,
    suggest::did_you_mean,
    yaml::{
        self,
        outline::{Node, Shape, outline},
    },
};

/// An account of a file.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Its name, which no other account of the file has.
    pub name: String,
    /// The name of its driver.
    pub driver: String,
    /// Its settings by their names, for [`super::Given::file`]. [`super::Values::resolve`] checks them.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the driver knows which settings are secret.
        let Self { name, driver, settings } = self;
        let names: Vec<_> = settings.keys().collect();
        f.debug_struct("Account").field("name", name).field("driver", driver).field("settings", &names).finish()
    }
}

/// The accounts of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountFile {
    accounts: Vec<Account>,
}

impl AccountFile {
    /// Parses the text of a file: `accounts`, a list of [`Account`]. Values are taken as they are written, also those that look
    /// like numbers or booleans. Fails for a field that does not exist, for two accounts with one name, and for two accounts of
    /// one driver with one setting `accountID`.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let file: Self = yaml::from_str(text).map_err(in_our_words)?;
        let root = outline(text)?.map(|outline| outline.root);
        let items = root.as_ref().and_then(|root| root.member("accounts")).map(|member| &member.value);
        let place = |index: usize, path: &[&str]| {
            let Shape::List(items) = &items?.shape else { return None };
            Some(place(text, at(items.get(index)?, path)))
        };
        let (mut names, mut ids) = (BTreeSet::new(), Ids::default());
        for (index, account) in file.accounts.iter().enumerate() {
            let name = &account.name;
            if !names.insert(name) {
                let message = format!("another account has the name {name:?}: rename one");
                return Err(Problem { place: place(index, &["name"]), message });
            }
            if let Some(id) = account.settings.get(ACCOUNT_ID).filter(|id| !id.is_empty()) {
                let add = ids.add(account, id);
                add.map_err(|message| Problem { place: place(index, &["settings", ACCOUNT_ID]), message })?;
            }
        }
        Ok(file)
    }

    /// All accounts, in the order of the file.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// Returns the account of a driver with a name or, without a name, its only one.
    pub fn account(&self, driver: &str, name: Option<&str>) -> Result<&Account, Problem> {
        if let Some(name) = name {
            let names = || self.accounts.iter().map(|account| account.name.as_str());
            let unknown = || format!("there is no account {name:?}{}; {}", did_you_mean(name, names()), all(names()));
            let found = self.accounts.iter().find(|account| account.name == name);
            let account = found.ok_or_else(|| Problem::new(unknown()))?;
            if account.driver != driver {
                let message = format!("the account {name:?} is of the driver {}, not of {driver}", account.driver);
                return Err(Problem::new(message));
            }
            return Ok(account);
        }
        let of_driver: Vec<_> = self.accounts.iter().filter(|account| account.driver == driver).collect();
        match of_driver[..] {
            [account] => Ok(account),
            [] => {
                let drivers: BTreeSet<_> = self.accounts.iter().map(|account| account.driver.as_str()).collect();
                Err(Problem::new(format!("no account of the driver {driver}; {}", all(drivers))))
            }
            _ => {
                let names = of_driver.iter().map(|account| account.name.as_str());
                let message = format!("several accounts of the driver {driver}: give --account; {}", all(names));
                Err(Problem::new(message))
            }
        }
    }
}

fn all<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    if words.is_empty() { "the file has no accounts".to_owned() } else { format!("the file has {}", words.join(", ")) }
}

/// Refuses two accounts of one driver that have the same id or the same part: its instances would be in both. Takes accounts with
/// the ids that the cloud gave when their credentials were verified, `AccountInfo::ids`: a pair for each id.
pub fn check_account_ids<'a>(verified: impl IntoIterator<Item = (&'a Account, &'a str)>) -> Result<(), Problem> {
    let mut ids = Ids::default();
    verified.into_iter().try_for_each(|(account, id)| ids.add(account, id).map_err(Problem::new))
}

/// The names of accounts by driver and id.
#[derive(Default)]
struct Ids<'a>(BTreeMap<(&'a str, &'a str), &'a str>);

impl<'a> Ids<'a> {
    fn add(&mut self, account: &'a Account, id: &'a str) -> Result<(), String> {
        let Account { name, driver, .. } = account;
        match self.0.insert((driver, id), name) {
            // A part of an account may have its id.
            Some(other) if other != name => Err(format!(
                "{other:?} and {name:?} are one account of {driver} or have a part in common, {id:?}: remove one"
            )),
            _ => Ok(()),
        }
    }
}

/// Replaces the words of the library, which are for programmers.
fn in_our_words(problem: Problem) -> Problem {
    let words = [
        ("cannot deserialize null", "null, which is not a value here: give one, or leave the key out"),
        ("expected sequence start", "expected a list of accounts, each with name, driver and settings"),
        ("expected string scalar", "expected a text, found a list or a mapping"),
        ("multiple YAML documents", "a second document: put all accounts into one"),
        ("unexpected end of input", "the file is empty; expected a list `accounts`"),
    ];
    let ours = words.into_iter().find(|(library, _)| problem.message.starts_with(library));
    Problem { message: ours.map_or(problem.message, |(_, ours)| ours.to_owned()), ..problem }
}

/// The byte where the value at a path of keys begins, or the nearest value around it, because aliases have no members here.
fn at(node: &Node, path: &[&str]) -> usize {
    match path.split_first().and_then(|(key, rest)| Some((node.member(key)?, rest))) {
        Some((member, rest)) => at(&member.value, rest),
        None => node.span.start,
    }
}

fn place(text: &str, at: usize) -> Place {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    Place { line: 1 + before.matches('\n').count(), column: Some(1 + before[line..].chars().count()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{COMMON, Given, Kind, Setting, Values};

    const FILE: &str = "\
# Accounts of two clouds.
accounts:
- name: prod
  driver: docker
  settings: {host: \"tcp://10.0.0.1:2376\", accountID: ABCD, timeout: 10s}
- name: test
  driver: docker
  settings:
    host: unix:///run/docker.sock
    operationsPerSecond: 0010
    readOnly: true
    accountID: 1.10
- name: trial
  driver: fake
";

    fn refused(text: &str) -> String {
        AccountFile::parse(text).unwrap_err().of("accounts.yaml")
    }

    #[test]
    fn values_are_the_texts_that_are_written() {
        let file = AccountFile::parse(FILE).unwrap();
        let names: Vec<_> = file.accounts().iter().map(|account| account.name.as_str()).collect();
        assert_eq!(names, ["prod", "test", "trial"]);
        let settings = &file.account("docker", Some("test")).unwrap().settings;
        let texts = ["host", "operationsPerSecond", "readOnly", "accountID"].map(|name| settings[name].as_str());
        assert_eq!(texts, ["unix:///run/docker.sock", "0010", "true", "1.10"]);
        assert!(file.account("fake", None).unwrap().settings.is_empty());
        assert_eq!(AccountFile::parse("accounts: []\n").unwrap().accounts(), []);
    }

    #[test]
    fn a_value_of_the_file_stands_between_the_environment_and_the_default() {
        let host = Setting::new("host", Kind::Text, "The address.");
        let settings = || COMMON.iter().chain([&host]);
        let file = AccountFile::parse(FILE).unwrap().account("docker", Some("prod")).unwrap().settings.clone();
        let one = |text: &str| BTreeMap::from([("timeout".to_owned(), text.to_owned())]);
        let mut given = Given { flags: one("1s"), environment: one("2s"), file };
        let resolved = |given: &Given| Values::resolve("docker", settings(), given).unwrap();
        assert_eq!(resolved(&given).text("timeout"), Some("1s"));
        given.flags.clear();
        assert_eq!(resolved(&given).text("timeout"), Some("2s"));
        given.environment.clear();
        assert_eq!(resolved(&given).text("timeout"), Some("10s"));
        assert_eq!(resolved(&given).text("host"), Some("tcp://10.0.0.1:2376"));
        given.file.remove("timeout");
        assert_eq!(resolved(&given).text("timeout"), Some("30s"));
        given.file.insert("hots".to_owned(), "a".to_owned());
        let problem = Values::resolve("docker", settings(), &given).unwrap_err();
        assert_eq!(problem.to_string(), "there is no setting \"hots\" (did you mean `host`?)");
    }

    #[test]
    fn an_account_is_chosen_by_its_name_or_because_it_is_the_only_one() {
        let file = AccountFile::parse(FILE).unwrap();
        let name = |driver: &str, name: Option<&str>| match file.account(driver, name) {
            Ok(account) => account.name.clone(),
            Err(problem) => problem.to_string(),
        };
        assert_eq!(name("docker", Some("prod")), "prod");
        assert_eq!(name("fake", None), "trial");
        assert_eq!(
            name("docker", None),
            "several accounts of the driver docker: give --account; the file has prod, test"
        );
        assert_eq!(
            name("docker", Some("prdo")),
            "there is no account \"prdo\" (did you mean `prod`?); the file has prod, test, trial"
        );
        assert_eq!(name("fake", Some("prod")), "the account \"prod\" is of the driver docker, not of fake");
        assert_eq!(name("aws", None), "no account of the driver aws; the file has docker, fake");
        let empty = AccountFile::default();
        let problem = empty.account("docker", None).unwrap_err().to_string();
        assert_eq!(problem, "no account of the driver docker; the file has no accounts");
    }

    #[test]
    fn a_file_with_two_meanings_is_refused_at_its_place() {
        for (text, problem) in [
            (
                "accounts:\n- {name: a, driver: b}\n- {driver: c, name: a}\n",
                "3:21: another account has the name \"a\": rename one",
            ),
            ("accounts:\n- &x {name: a, driver: b}\n- *x\n", "3:3: another account has the name \"a\": rename one"),
            (
                "accounts:\n- {name: a, driver: d, settings: {accountID: 7}}\n- name: ü\n  driver: d\n  settings: \
                 {accountID: \"7\"}\n",
                "5:25: \"a\" and \"ü\" are one account of d or have a part in common, \"7\": remove one",
            ),
            (
                "accounts:\n- nmae: a\n",
                "2:3: unknown field `nmae`, expected one of name, driver, settings (did you mean `name`?)",
            ),
            ("acounts: []\n", "1:1: unknown field `acounts`, expected one of accounts (did you mean `accounts`?)"),
            ("accounts:\n- name: a\n", "2:3: missing field `driver`"),
            ("accounts:\n- {name: a, name: b}\n", "2:13: a key stands twice, remove one: \"name\""),
            ("accounts: {a: b}\n", "1:11: expected a list of accounts, each with name, driver and settings"),
            ("accounts: []\n---\nb: c\n", "3:1: a second document: put all accounts into one"),
            ("", "1:1: the file is empty; expected a list `accounts`"),
            ("accounts: [\n", "1:11: unclosed bracket '['"),
        ] {
            assert_eq!(refused(text), format!("accounts.yaml:{problem}"), "{text}");
        }
        let other_driver = "accounts:\n- {name: a, driver: b, settings: {accountID: 7}}\n- {name: b, driver: c, settings: \
                            {accountID: 7}}\n";
        assert_eq!(AccountFile::parse(other_driver).unwrap().accounts().len(), 2);
    }

    #[test]
    fn two_verified_accounts_with_one_id_are_refused() {
        let file = AccountFile::parse(FILE).unwrap();
        let ids = |ids: [&'static str; 3]| check_account_ids(file.accounts().iter().zip(ids));
        assert_eq!(ids(["1", "2", "1"]), Ok(()), "the accounts of two drivers have nothing in common");
        let problem = ids(["1", "1", "2"]).unwrap_err().to_string();
        assert_eq!(
            problem,
            "\"prod\" and \"test\" are one account of docker or have a part in common, \"1\": remove one"
        );
        let prod = &file.accounts()[0];
        let test = &file.accounts()[1];
        let parts = [(prod, "A+B"), (prod, "A"), (prod, "B")];
        assert_eq!(
            check_account_ids([(prod, "A"), (prod, "A"), (test, "B")]),
            Ok(()),
            "an account that is its only part"
        );
        let problem = check_account_ids(parts.into_iter().chain([(test, "B")])).unwrap_err().to_string();
        assert_eq!(
            problem,
            "\"prod\" and \"test\" are one account of docker or have a part in common, \"B\": remove one"
        );
        let unset = "accounts:\n- {name: a, driver: d, settings: {accountID: ''}}\n- {name: b, driver: d, settings: {accountID: ''}}\n";
        assert_eq!(AccountFile::parse(unset).unwrap().accounts().len(), 2, "an empty text is not given");
    }

    #[test]
    fn no_value_is_in_an_error_or_in_debug() {
        for settings in
            ["hunter2", "[hunter2]", "{a: [hunter2]}", "{a: {b: hunter2}}", "{a: !!int hunter2}", "{a: \"hunter2}"]
        {
            let problem = refused(&format!("accounts:\n- name: a\n  driver: b\n  settings: {settings}\n"));
            assert!(problem.starts_with("accounts.yaml:4:") && !problem.contains("hunter2"), "{problem}");
        }
        let text = "accounts:\n- {name: a, driver: b, settings: {token: hunter2}}\n";
        let shown = format!("{:?}", AccountFile::parse(text).unwrap());
        assert!(shown.contains("token") && !shown.contains("hunter2"), "{shown}");
        let null = refused("accounts:\n- name: a\n  driver: b\n  settings: {a: ~}\n");
        assert_eq!(null, "accounts.yaml:4:17: null, which is not a value here: give one, or leave the key out");
    }
}
