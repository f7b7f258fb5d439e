//! The command `provider test`: starts a provider's cloud-controller-manager beside the cluster's own, and removes it
//! again.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use k8s_openapi::api::core::v1;
use kube::{
    Api, Client,
    api::{ListParams, LogParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::PolicyArgs;
use crate::{
    api::placement::ApiServer,
    cli::flags::{AnyCluster, OutputFormat, api_server, duration, one_reads_stdin, print, runtime, say},
    cluster::{
        read,
        request::{self, NO_DEADLINE},
    },
    error::chain,
    evidence,
    facts::ccm::{Ccm, Controller},
    nodes::identity::Need,
    object::{EVENT, NAMESPACE, Object, POD, reference::SECRET},
    plan::kubernetes::{
        self,
        trial::{LABEL, Trial},
    },
    preflight::{
        permissions::needs_to,
        read::{cluster, missing, seen},
    },
    process::lease::LEASE,
    provider::kubernetes::{INSTANCE_LABEL, KubernetesProvider},
    status::trial::{TrialPod, TrialReport, events, is_ready},
};
use made::{Objects, may_pass};
use stop::Stop;

mod input;
mod made;
mod stop;

/// The examples of the long help.
const HELP: &str = "\
Examples:
  ccm-operator provider test ./acme --credentials token.env
      starts it without any controller: it logs in in the cloud, holds a lease of its own, and
      changes nothing
  ccm-operator provider test ./acme --secret kube-system/acme --cloud-config acme.yaml
      copies the keys that it needs from the Secret of the cluster, and mounts the file
  ccm-operator provider test hcloud --secret kube-system/hcloud --initialize
      also initializes the nodes that wait for it; what it writes on nodes stays

What it makes is created, not applied, so that it touches nothing that exists: a namespace
ccm-test-xxxxx, a Secret in it, and the provider's objects under names that end like that, with a
lease and a port of their own and the label ccm-operator.dev/test. All of it is removed again, also
after Ctrl-C; a second Ctrl-C leaves it, and prints the commands that remove it. A provider that may
only be in kube-system is tested there. What the cloud's own code does when it starts, it does.";

/// The characters of the random part of a name, without vowels, as in Kubernetes.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The range from which a port is chosen: above the ports of Kubernetes, below those of Services and of outgoing connections.
const PORTS: std::ops::Range<u16> = 11_000..20_000;

/// The interval between two reads of the pods.
const PAUSE: Duration = Duration::from_secs(1);

/// The number of log lines to show, and the number of bytes to read for them.
const LOG: (i64, i64) = (15, 64 << 10);

/// Flags of `provider test`.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct TestArgs {
    /// A provider's folder, tar or OCI image layout, or a name from `provider list`; `./NAME` is always a path.
    #[arg(value_name = "FOLDER|NAME")]
    pub target: String,

    /// The cloud's configuration, which becomes --cloud-config; - is the standard input.
    #[arg(long, value_name = "FILE")]
    pub cloud_config: Option<PathBuf>,

    /// The credentials for the cloud: a file or a folder, as for `init`; - is the standard input.
    #[arg(long, value_name = "FILE|FOLDER", conflicts_with = "secret")]
    pub credentials: Option<PathBuf>,

    /// The Secret of the cluster whose keys are copied: the credentials, or the file of --cloud-config.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub secret: Option<String>,

    /// Also run the controller that initializes nodes. Its changes to nodes remain.
    #[arg(long)]
    pub initialize: bool,

    /// The policy that extends the rules for external providers.
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// The address of the API server for the test's pods, if it differs from that of the distribution: for example, if the address of the
    /// Service `kubernetes` does not work yet, because another program than kube-proxy serves it.
    #[arg(long, value_name = "HOST:PORT", value_parser = api_server)]
    pub api_server: Option<ApiServer>,

    /// How long to wait for a ready pod.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub timeout: Duration,

    /// The cluster.
    #[command(flatten)]
    pub cluster: AnyCluster,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// The result of the wait for a ready pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Ready,
    TimedOut,
    Stopped,
}

/// A test that is ready to start.
struct Test<'a> {
    client: &'a Client,
    provider: &'a KubernetesProvider,
    trial: &'a Trial<'a>,
    ccm: &'a Ccm,
    secret: Option<Value>,
    objects: Vec<Object>,
    timeout: Duration,
}

/// Tests a provider; the exit code says whether a pod was ready.
pub(super) fn run(args: &TestArgs) -> anyhow::Result<ExitCode> {
    one_reads_stdin([args.credentials.as_ref(), args.cloud_config.as_ref()])?;
    let provider = input::provider(args)?;
    let report = runtime()?.block_on(test(args, &provider))?;
    print(&args.output.write(&report, || report.text())?)?;
    if !report.left.is_empty() {
        bail!("{} objects of the test are left; the commands above remove them", report.left.len());
    }
    Ok(if report.ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn test(args: &TestArgs, provider: &KubernetesProvider) -> anyhow::Result<TrialReport> {
    let client = args.cluster.client().await?;
    let name = format!("ccm-test-{}", letters(RandomState::new().hash_one(0)));
    let values = input::values(args, provider, &client).await?;
    let file = provider.descriptor.cloud_config.as_ref().map(|config| config.file.as_str());
    let trial = Trial {
        name: &name,
        port: PORTS.start + u16::try_from(RandomState::new().hash_one(1) % PORTS.len() as u64).unwrap_or_default(),
        initializes: args.initialize,
        has_config: file.is_some_and(|file| values.contains_key(file)),
        has_credentials: values.keys().any(|key| Some(key.as_str()) != file),
        api_server: args.api_server.clone(),
        cluster: cluster(&client, seen(evidence::nodes(&client).await, "nodes", String::new())?.ok().as_deref())
            .await?,
    };
    let ccm = trial.ccm(provider)?;
    let objects = trial.objects(provider, &ccm)?;
    let namespace = &ccm.spec.namespace;
    let data = |(key, value): (String, Vec<u8>)| (key, Value::from(STANDARD.encode(value)));
    let secret = (!values.is_empty()).then(|| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: name}},
            "data": values.into_iter().map(data).collect::<serde_json::Map<_, _>>()})
    });
    let timeout = args.timeout;
    let test = Test { client: &client, provider, trial: &trial, ccm: &ccm, secret, objects, timeout };
    test.check_permissions().await?;

    let mut stop = Stop::new()?;
    let mut made = Objects::new(&client, &name);
    say(&format!("test {name}: everything that it makes has the label {LABEL}={name}"));
    let started = Instant::now();
    let found = test.start_and_watch(&mut made, &mut stop).await;
    let seconds = started.elapsed().as_secs();
    // The state and the logs of the pods must be read before their removal.
    let report = match found {
        Ok(End::Stopped) => Err(anyhow::anyhow!("stopped by a signal before a pod was ready")),
        Ok(end) => test.report(end, seconds).await,
        Err(error) => Err(error),
    };
    say(&format!("removing what test {name} has made"));
    tokio::select! {
        () = made.remove() => {}
        () = stop.asked() => say("stopped at once by another signal"),
    }
    let left = made.left(&args.cluster.connection.access());
    for one in &left {
        say(&format!("not removed: {}: {}; {}", one.object, one.why, one.command));
    }
    if left.is_empty() {
        say("everything is removed");
    }
    Ok(TrialReport { left, ..report? })
}

impl Test<'_> {
    /// Fails with the missing permissions before any object is created.
    async fn check_permissions(&self) -> anyhow::Result<()> {
        let needed = self.needs();
        let of_all = needed.union(&needs_to(&[], &self.objects)).cloned().collect();
        // Users may normally review their own permissions. If not, the API server refuses the requests later.
        let Ok(lacking) = missing(self.client, None, of_all).await? else { return Ok(()) };
        // The creator of a role must have its permissions, unless they may escalate.
        let of_roles =
            ["clusterroles", "roles"].map(|plural| need("escalate", "rbac.authorization.k8s.io", plural, "", ""));
        let escalates = missing(self.client, None, of_roles.into()).await?;
        let escalates = escalates.is_ok_and(|missing| missing.is_empty());
        let lacking = lacking.iter().filter(|need| needed.contains(need) || !escalates);
        let lacking: Vec<_> = lacking.map(Need::words).collect();
        anyhow::ensure!(lacking.is_empty(), "nothing was created: you may not {}", lacking.join(", "));
        Ok(())
    }

    /// Returns the permissions for the objects of the test and for reading its pods.
    fn needs(&self) -> BTreeSet<Need> {
        const VERBS: [&str; 3] = ["create", "get", "delete"];
        let (own, mut needs) = (&self.ccm.spec.namespace, BTreeSet::new());
        for object in &self.objects {
            let kind = object.kind();
            needs.extend(VERBS.map(|verb| need(verb, kind.group, kind.plural, object.namespace(), "")));
        }
        if self.secret.is_some() {
            needs.extend(VERBS.map(|verb| need(verb, "", SECRET.plural, own, "")));
        }
        if self.has_namespace() {
            needs.extend(VERBS.map(|verb| need(verb, "", NAMESPACE.plural, "", "")));
        } else {
            needs.extend(["get", "delete"].map(|verb| need(verb, LEASE.group, LEASE.plural, own, "")));
        }
        needs.extend([need("list", "", POD.plural, own, ""), need("list", "", EVENT.plural, own, "")]);
        needs.insert(need("get", "", "pods/log", own, ""));
        needs
    }

    fn has_namespace(&self) -> bool {
        self.ccm.spec.namespace == self.trial.name
    }

    async fn start_and_watch(&self, made: &mut Objects<'_>, stop: &mut Stop) -> anyhow::Result<End> {
        let name = self.trial.name;
        if self.has_namespace() {
            // The pods use the host network.
            let labels = json!({LABEL: name, "pod-security.kubernetes.io/enforce": "privileged"});
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
            made.create(&NAMESPACE, &namespace).await?;
        } else {
            made.also(&LEASE, &self.ccm.spec.namespace, &self.ccm.lease_name());
        }
        let secret = self.secret.iter().map(|secret| (&SECRET, secret));
        for (kind, manifest) in secret.chain(self.objects.iter().map(|one| (one.kind(), one.value()))) {
            if stop.is_asked() {
                return Ok(End::Stopped);
            }
            made.create(kind, manifest).await?;
        }
        say(&format!("created {} objects; waiting for a pod", made.len()));
        tokio::select! {
            end = self.watch() => end,
            () = stop.asked() => Ok(End::Stopped),
        }
    }

    /// Waits for a ready pod, and prints the reasons for the wait.
    async fn watch(&self) -> anyhow::Result<End> {
        let deadline = Instant::now() + self.timeout;
        let mut said = BTreeSet::new();
        let workload = self.objects.iter().find(|one| {
            let own = self.provider.workload().map(|(workload, _)| self.ccm.named(workload.name()));
            one.pod_spec().is_some() && own.as_deref() == Some(one.name())
        });
        let workload = workload.map(Object::value).context("the provider has no workload")?;
        while Instant::now() < deadline {
            match self.live().await {
                Ok((pods, events)) => {
                    if pods.iter().any(|pod| is_ready(workload, pod)) {
                        return Ok(End::Ready);
                    }
                    for why in pods.iter().filter_map(|pod| TrialPod::of(pod, &events).waits_for) {
                        if said.insert(why.clone()) {
                            say(&why);
                        }
                    }
                }
                Err(error) if may_pass(&error) => say(&chain(&error)),
                Err(error) => return Err(error.into()),
            }
            sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
        Ok(End::TimedOut)
    }

    /// Reads the pods of the test, and the Events of their namespace.
    async fn live(&self) -> Result<(Vec<Value>, Vec<Value>), read::Error> {
        let own = format!("{}={}", INSTANCE_LABEL, self.trial.name);
        let namespace = &self.ccm.spec.namespace;
        let pods = read::list(self.client, &POD, namespace, &ListParams::default().labels(&own)).await?;
        Ok((pods, read::list(self.client, &EVENT, namespace, &ListParams::default()).await?))
    }

    async fn report(&self, end: End, seconds: u64) -> anyhow::Result<TrialReport> {
        let (live, all_events) = self.live().await?;
        let mut pods: Vec<_> = live.iter().map(|pod| TrialPod::of(pod, &all_events)).collect();
        for pod in &mut pods {
            self.read_logs(pod).await;
        }
        let images = &self.provider.descriptor.images;
        let images = images.iter().map(|(container, image)| kubernetes::reference(container, image, self.ccm));
        Ok(TrialReport {
            test: self.trial.name.to_owned(),
            provider: self.provider.descriptor.name.clone(),
            namespace: self.ccm.spec.namespace.clone(),
            kubernetes: self.trial.cluster.minor.to_string(),
            images: images.collect::<Result<_, _>>()?,
            controllers: self.ccm.controllers().map(Controller::field).collect(),
            ready: end == End::Ready,
            seconds,
            pods,
            events: events(&all_events, self.trial.name),
            left: Vec::new(),
        })
    }

    /// Reads the last lines of the logs of a pod's containers; an unreadable log stays empty.
    async fn read_logs(&self, pod: &mut TrialPod) {
        let logs: Api<v1::Pod> = Api::namespaced(self.client.clone(), &self.ccm.spec.namespace);
        let containers: Vec<_> = pod.containers.iter().map(|one| (one.name.clone(), one.has_ended())).collect();
        for (container, has_ended) in containers {
            let params = |previous| LogParams {
                container: Some(container.clone()),
                tail_lines: Some(LOG.0),
                limit_bytes: Some(LOG.1),
                previous,
                ..LogParams::default()
            };
            let read = async |previous| request::send(NO_DEADLINE, logs.logs(&pod.name, &params(previous))).await.ok();
            let log = match read(has_ended).await {
                None if has_ended => read(false).await,
                log => log,
            };
            pod.log(&container, &log.unwrap_or_default());
        }
    }
}

fn need(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Need {
    let [verb, group, resource, namespace, name] = [verb, group, resource, namespace, name].map(str::to_owned);
    Need { verb, group, resource, namespace, name }
}

fn letters(mut number: u64) -> String {
    let mut letter = || {
        let at = usize::try_from(number % LETTERS.len() as u64).unwrap_or_default();
        number /= LETTERS.len() as u64;
        char::from(LETTERS[at])
    };
    (0..5).map(|_| letter()).collect()
}

#[cfg(test)]
mod tests;
