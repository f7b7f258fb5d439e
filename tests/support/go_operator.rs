//! The command lines of the Go operator's Deployment: two containers side by side, each with a shell that reads the address
//! of the API server and then becomes the program.

/// The arguments of both.
const LEADER_ELECTION: [&str; 5] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=137s",
    "--leader-elect-renew-deadline=107s",
    "--leader-elect-retry-period=26s",
    "--leader-elect-resource-namespace=openshift-cloud-controller-manager-operator",
];

/// The file with the address of the API server.
pub const API_SERVER_ENV_FILE: &str = "etc/kubernetes/apiserver-url.env";

/// A container of the Go operator.
#[derive(Debug)]
pub struct Container {
    /// The program, in the root folder of its image.
    pub program: &'static str,
    arguments: &'static [&'static str],
}

/// Installs the cloud-controller-manager.
pub const OPERATOR: Container = Container {
    program: "cluster-controller-manager-operator",
    arguments: &[
        "--images-json=/etc/cloud-controller-manager-config/images.json",
        "--webhook-port=9443",
        "--metrics-bind-address=:9258",
        "--health-addr=127.0.0.1:9259",
    ],
};

/// Syncs the cloud's configuration and the trusted certificates.
pub const CONFIG_SYNC: Container =
    Container { program: "config-sync-controllers", arguments: &["--health-addr=127.0.0.1:9260"] };

impl Container {
    /// The text for `bash -c` in a file system that begins at `root`. Each of `others` takes the place of the same flag, or
    /// comes in addition.
    pub fn script(&self, root: &str, others: &[String]) -> String {
        let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
        let is_replaced = |flag: &str| others.iter().any(|other| name(other) == name(flag));
        let own = LEADER_ELECTION.iter().chain(self.arguments).copied().filter(|flag| !is_replaced(flag));
        let arguments: Vec<&str> = own.chain(others.iter().map(String::as_str)).collect();
        format!(
            "set -o allexport\n\
             if [[ -f {root}/{API_SERVER_ENV_FILE} ]]; then source {root}/{API_SERVER_ENV_FILE}\n\
             else URL_ONLY_KUBECONFIG={root}/etc/kubernetes/kubeconfig; fi\n\
             exec {root}/{} {}\n",
            self.program,
            arguments.join(" ")
        )
    }
}

/// The text of the file with the address of an API server on this host.
pub fn api_server_env(port: u16) -> String {
    format!("KUBERNETES_SERVICE_HOST='127.0.0.1'\nKUBERNETES_SERVICE_PORT='{port}'\n")
}
