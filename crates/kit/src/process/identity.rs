//! The identity of this process in leader election (IO).

use std::{env, fs};

/// Returns the Pod's UID and the container's name, so that a restarted container keeps the lease, and two containers of a Pod never
/// share one. Outside of a Pod, or if the name is unknown, the identity is unique.
///
/// The environment variables `POD_UID` and `CONTAINER_NAME` come first, then the kubelet's mounts.
pub fn of_container() -> String {
    match container() {
        Container { uid: Some(uid), name: Some(name) } => format!("{uid}_{name}"),
        Container { uid, .. } => format!("{}_{}", uid.unwrap_or_else(host), unique()),
    }
}

/// Returns the identity of this process in the form of client-go, `<host name>_<id>`, by which others find the Pod that leads. The id
/// is that of the container, if it is known, and has no underscore.
pub fn with_host_name() -> String {
    match container() {
        Container { uid: Some(uid), name: Some(name) } => format!("{}_{uid}-{name}", host()),
        Container { .. } => format!("{}_{}", host(), unique()),
    }
}

/// What is known of the container of this process.
struct Container {
    uid: Option<String>,
    name: Option<String>,
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn host() -> String {
    read("/proc/sys/kernel/hostname").trim().to_owned()
}

fn unique() -> String {
    read("/proc/sys/kernel/random/uuid").trim().to_owned()
}

fn container() -> Container {
    let mounts = read("/proc/self/mountinfo");
    let given = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let mounted = of_mounts(&mounts);
    let uid = given("POD_UID").or(mounted.map(|(uid, _)| uid.to_owned()));
    let name = given("CONTAINER_NAME").or(mounted.and_then(|(_, container)| container).map(ToOwned::to_owned));
    Container { uid, name }
}

/// Reads the Pod's UID and the container's name. The kubelet mounts `/etc/hosts` from `<root>/pods/<uid>/` and the
/// termination log from `<root>/pods/<uid>/containers/<name>/`. Other mounts may belong to other Pods.
fn of_mounts(mountinfo: &str) -> Option<(&str, Option<&str>)> {
    let is_uid = |part: &str| part.len() == 36 && part.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let pods = mountinfo.lines().filter_map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        matches!(fields.get(4), Some(&("/etc/hosts" | "/dev/termination-log"))).then_some(())?;
        let mut parts = fields[3].split_once("/pods/")?.1.split('/');
        let uid = parts.next().filter(|part| is_uid(part))?;
        Some((uid, parts.next().filter(|part| *part == "containers").and_then(|_| parts.next())))
    });
    pods.max_by_key(|(_, container)| container.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_identify_pod_and_container() {
        let uid = "0f4b2c9e-52d8-4a66-9e36-2d0e1a2f8b11";
        let root = "36 35 98:0 / / rw - ext3 /dev/root rw\n";
        let hosts = format!("1011 990 8:1 /var/lib/kubelet/pods/{uid}/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw\n");
        let log =
            format!("1012 990 8:1 /var/lib/kubelet/pods/{uid}/containers/ccm/5f /dev/termination-log rw - ext4\n");
        assert_eq!(of_mounts(&format!("{root}{log}{hosts}")), Some((uid, Some("ccm"))));
        assert_eq!(of_mounts(&format!("{root}{hosts}")), Some((uid, None)));
        assert_eq!(of_mounts("36 35 98:0 /mnt/pods/some /etc/hosts rw\n"), None);
        let foreign = format!("36 35 98:0 / /var/lib/kubelet/pods/{uid}/volumes/x rw\n");
        assert_eq!(of_mounts(&foreign), None, "a node's mount namespace shows the mounts of every Pod");
    }
}
