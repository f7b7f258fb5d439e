//! Which instance a word of the command line means: one with exactly this id or, if there is none, exactly this name.

use ccm_drivers::contract::{Error, ErrorKind, Filter, Instance, Instances, Result};

use crate::{error::brief, text::list};

/// How many ids an error has.
const MOST_IDS: usize = 5;

/// Returns the instance with this id or this name; `None` if the cloud has none. The beginning of an id or of a name means nothing.
pub(super) async fn find(instances: &dyn Instances, word: &str) -> Result<Option<Instance>> {
    let problem = match instances.get(word).await {
        Ok(instance) => return Ok(Some(instance)),
        Err(error) if error.is_not_found() => None,
        // It has not the form of an id.
        Err(error) if matches!(error.kind, ErrorKind::InvalidArgument(_)) => Some(error),
        Err(error) => return Err(error),
    };
    let filter = Filter { name: Some(word.to_owned()), ..Filter::default() };
    let mut named: Vec<_> =
        instances.list(&filter).await?.into_iter().filter(|instance| filter.fits(instance)).collect();
    if named.len() > 1 {
        let ids = list::first(MOST_IDS, named.iter().map(|instance| brief(&instance.id)));
        let name = brief(word);
        return Err(Error::invalid("name", format!("several instances are named {name:?}, name one by its id: {ids}")));
    }
    match (named.pop(), problem) {
        (None, Some(error)) => Err(error),
        (found, _) => Ok(found),
    }
}

/// Returns the instance with this id or this name. Fails with `NotFound` if the cloud has none.
pub(super) async fn instance(instances: &dyn Instances, word: &str) -> Result<Instance> {
    find(instances, word).await?.ok_or_else(|| missing(word))
}

fn missing(word: &str) -> Error {
    Error::not_found(format!("there is no instance with the id or the name {:?}", brief(word)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use async_trait::async_trait;
    use ccm_drivers::contract::{InstanceSpec, Marks, State};

    use super::*;

    fn named(id: &str, name: &str) -> Instance {
        Instance {
            id: id.to_owned(),
            provider_id: String::new(),
            name: name.to_owned(),
            region: String::new(),
            zone: String::new(),
            state: State::Running,
            image: String::new(),
            instance_type: String::new(),
            addresses: Vec::new(),
            labels: BTreeMap::new(),
            marks: Marks::default(),
            created: String::new(),
        }
    }

    /// A driver that lists everything whatever the filter says, and whose `get` fails with this error for what it does not have.
    struct Careless {
        instances: Vec<Instance>,
        missing: ErrorKind,
    }

    #[async_trait]
    impl Instances for Careless {
        async fn list(&self, _: &Filter) -> Result<Vec<Instance>> {
            Ok(self.instances.clone())
        }

        async fn get(&self, id: &str) -> Result<Instance> {
            let found = self.instances.iter().find(|instance| instance.id == id).cloned();
            found.ok_or_else(|| Error::new(self.missing.clone(), "not this one"))
        }

        async fn create(&self, _: &InstanceSpec) -> Result<Instance> {
            Err(Error::not_supported("create"))
        }

        async fn delete(&self, _: &str) -> Result<()> {
            Err(Error::not_supported("delete"))
        }

        async fn start(&self, _: &str) -> Result<()> {
            Err(Error::not_supported("start"))
        }

        async fn stop(&self, _: &str) -> Result<()> {
            Err(Error::not_supported("stop"))
        }
    }

    #[tokio::test]
    async fn a_word_is_a_whole_id_or_a_whole_name() {
        let instances =
            vec![named("abc", "worker-1"), named("abd", "worker-10"), named("x1", "two"), named("x2", "two")];
        let found = async |word: &str, missing: ErrorKind| {
            let cloud = Careless { instances: instances.clone(), missing };
            instance(&cloud, word).await.map(|instance| instance.id).map_err(|error| error.kind)
        };
        let bad_id = || ErrorKind::InvalidArgument("id".to_owned());
        for (word, expected) in [
            ("abc", Ok("abc")),
            ("worker-1", Ok("abc")),
            ("worker-10", Ok("abd")),
            ("ab", Err(ErrorKind::NotFound)),
            ("worker-", Err(ErrorKind::NotFound)),
            ("", Err(ErrorKind::NotFound)),
            ("two", Err(ErrorKind::InvalidArgument("name".to_owned()))),
        ] {
            let expected = expected.map(ToOwned::to_owned);
            assert_eq!(found(word, ErrorKind::NotFound).await, expected, "{word}");
        }
        assert_eq!(found("worker-1", bad_id()).await.as_deref(), Ok("abc"), "a name that is no id");
        assert_eq!(found("worker", bad_id()).await, Err(bad_id()), "the driver's own words for it");
        assert_eq!(
            found("worker-1", ErrorKind::Unavailable).await,
            Err(ErrorKind::Unavailable),
            "no list after a failure"
        );
    }

    #[tokio::test]
    async fn an_id_that_is_another_ones_name_means_the_id() {
        let instances = vec![named("a", "b"), named("b", "c")];
        let cloud = Careless { instances, missing: ErrorKind::NotFound };
        assert_eq!(instance(&cloud, "b").await.unwrap().id, "b");
    }

    #[tokio::test]
    async fn an_ambiguous_name_is_an_error_with_the_ids() {
        let cloud = Careless { instances: vec![named("x1", "two"), named("x2", "two")], missing: ErrorKind::NotFound };
        let error = instance(&cloud, "two").await.unwrap_err().to_string();
        assert!(error.ends_with("x1, x2"), "{error}");
    }
}
