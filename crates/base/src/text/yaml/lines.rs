//! The lines of a document's values, found by their JSON pointers (pure).

use crate::text::{
    work,
    yaml::outline::{Node, Shape},
};

/// The lines of the values of a document.
#[derive(Clone, Debug, Default)]
pub struct Lines(Option<Value>);

/// A value: smaller than a [`Node`], because many are kept, and with members that are found by binary search.
#[derive(Clone, Debug)]
struct Value {
    /// Its first line, from 1.
    line: usize,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Scalar,
    List(Box<[Value]>),
    /// Sorted by key: the key, its line and its value.
    Mapping(Box<[(Box<str>, usize, Value)]>),
}

impl Lines {
    /// The lines of a document.
    pub fn of_root(root: &Node) -> Self {
        Self(Some(Value::of(root)))
    }

    /// Returns the line, from 1, of the value at a JSON pointer, or of the nearest value around it if the value is absent. It
    /// is the line of the value's key if it has one.
    pub fn of(&self, pointer: &str) -> usize {
        let Some(root) = &self.0 else { return 1 };
        let (mut value, mut found) = (root, root.line);
        for key in pointer.split('/').skip(1) {
            let key = key.replace("~1", "/").replace("~0", "~");
            let below = match &value.content {
                Content::Scalar => None,
                Content::List(items) => {
                    key.parse().ok().and_then(|index: usize| items.get(index)).map(|item| (item.line, item))
                }
                Content::Mapping(members) => {
                    let at = members.partition_point(|(known, ..)| {
                        work::add(1);
                        **known < *key
                    });
                    members.get(at).filter(|(known, ..)| **known == *key).map(|(_, line, value)| (*line, value))
                }
            };
            let Some((line, below)) = below else { break };
            (found, value) = (line, below);
        }
        found
    }
}

impl Value {
    fn of(node: &Node) -> Self {
        let content = match &node.shape {
            Shape::Null | Shape::Scalar | Shape::Alias(_) => Content::Scalar,
            Shape::List(items) => Content::List(items.iter().map(Self::of).collect()),
            Shape::Block(members) | Shape::Flow(members) => {
                let members = members.iter();
                let mut members: Vec<_> =
                    members.map(|one| (one.key.as_str().into(), one.line, Self::of(&one.value))).collect();
                // Stable: of several members without a name, the first one counts.
                members.sort_by(|(one, ..): &(Box<str>, _, _), (other, ..)| one.cmp(other));
                Content::Mapping(members.into())
            }
        };
        Self { line: node.line, content }
    }
}
