//! The kubectl flags that select a cluster (pure), and commands with them that a user copies into a shell. An untrusted
//! text, such as an annotation, is always a single word of a command.

use std::path::PathBuf;

use crate::text::shell::quoted;

/// The cluster and the user of a connection: kubectl's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// `--kubeconfig`; by default the one of `KUBECONFIG` or `~/.kube/config`, else the credentials of the Pod.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`, instead of the kubeconfig's current one.
    pub context: Option<String>,
    /// `--cluster`, instead of the context's.
    pub cluster: Option<String>,
    /// `--user`, instead of the context's.
    pub user: Option<String>,
    /// `--as`, the user to impersonate, instead of the kubeconfig's.
    pub as_user: Option<String>,
    /// `--as-group`, the groups of the user to impersonate.
    pub as_groups: Vec<String>,
}

impl Access {
    /// The flags of kubectl and of this program; each begins with a space.
    pub fn flags(&self) -> String {
        // Every field is named, so that no flag of the connection is forgotten: `to_cluster` has the others.
        let Self { kubeconfig: _, context: _, cluster: _, user: _, as_user, as_groups } = self;
        let who = std::iter::once(("--as", as_user.as_ref()));
        let who = who.chain(as_groups.iter().map(|group| ("--as-group", Some(group))));
        self.to_cluster() + &joined(who)
    }

    fn to_cluster(&self) -> String {
        joined([
            ("--kubeconfig", self.file().as_ref()),
            ("--context", self.context.as_ref()),
            ("--cluster", self.cluster.as_ref()),
            ("--user", self.user.as_ref()),
        ])
    }

    fn file(&self) -> Option<String> {
        self.kubeconfig.as_ref().map(|path| path.display().to_string())
    }

    /// The first given flag that selects an entry of the kubeconfig.
    pub fn choice(&self) -> Option<&'static str> {
        let flags = [("context", &self.context), ("cluster", &self.cluster), ("user", &self.user)];
        flags.into_iter().find(|(_, value)| value.is_some()).map(|(flag, _)| flag)
    }

    /// kubectl with these flags.
    pub fn kubectl(&self) -> String {
        format!("kubectl{}", self.flags())
    }

    /// kubectl for a command that impersonates another user.
    pub fn kubectl_as(&self, who: &str) -> String {
        format!("kubectl{} --as={}", self.to_cluster(), quoted(who))
    }

    /// Helm with these flags.
    pub fn helm(&self) -> String {
        // `helm_problem` reports the fields that have no Helm flag.
        let Self { kubeconfig: _, context, cluster: _, user: _, as_user, as_groups } = self;
        let file = self.file();
        let flags = [
            ("--kubeconfig", file.as_ref()),
            ("--kube-context", context.as_ref()),
            ("--kube-as-user", as_user.as_ref()),
        ];
        let groups = as_groups.iter().map(|group| ("--kube-as-group", Some(group)));
        format!("helm{}", joined(flags.into_iter().chain(groups)))
    }

    /// The reason why Helm cannot use this connection; `None` if it can.
    pub fn helm_problem(&self) -> Option<&'static str> {
        let is_partly = self.cluster.is_some() || self.user.is_some();
        is_partly.then_some("Helm has no --cluster and no --user: give it a context with both")
    }
}

fn joined<'a>(flags: impl IntoIterator<Item = (&'static str, Option<&'a String>)>) -> String {
    let given = flags.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
    given.fold(String::new(), |text, (flag, value)| format!("{text} {flag}={}", quoted(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_gets_the_connection_by_its_own_flags() {
        let access = Access {
            kubeconfig: Some("my config".into()),
            context: Some("prod".into()),
            as_user: Some("me".into()),
            as_groups: vec!["a:b".into()],
            ..Access::default()
        };
        assert_eq!(access.kubectl(), "kubectl --kubeconfig='my config' --context=prod --as=me --as-group=a:b");
        assert_eq!(access.kubectl_as("x"), "kubectl --kubeconfig='my config' --context=prod --as=x");
        assert_eq!(
            access.helm(),
            "helm --kubeconfig='my config' --kube-context=prod --kube-as-user=me --kube-as-group=a:b"
        );
        assert_eq!((Access::default().kubectl(), Access::default().helm()), ("kubectl".into(), "helm".into()));
        let partly = Access { user: Some("u".into()), ..Access::default() };
        assert!(partly.helm_problem().is_some() && access.helm_problem().is_none());
    }
}
