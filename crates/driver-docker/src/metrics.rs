//! What a container uses, from its control groups of either version.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_drivers::contract::{Metrics, Result, Usage};
use serde::Deserialize;

use crate::{client::query, driver::Engines};

/// The time of the sample of a container that does not run.
const NEVER: &str = "0001-01-01T00:00:00Z";

#[derive(Deserialize)]
struct Sample {
    read: String,
    #[serde(default)]
    cpu_stats: Processor,
    #[serde(default)]
    memory_stats: Memory,
    #[serde(default)]
    networks: Option<BTreeMap<String, Network>>,
    #[serde(default)]
    blkio_stats: Disk,
}

#[derive(Default, Deserialize)]
struct Processor {
    #[serde(default)]
    cpu_usage: Time,
}

#[derive(Default, Deserialize)]
struct Time {
    /// In nanoseconds.
    total_usage: Option<u64>,
}

#[derive(Default, Deserialize)]
struct Memory {
    usage: Option<u64>,
    limit: Option<u64>,
    #[serde(default)]
    stats: BTreeMap<String, u64>,
}

#[derive(Default, Deserialize)]
struct Network {
    rx_bytes: u64,
    tx_bytes: u64,
}

#[derive(Default, Deserialize)]
struct Disk {
    io_service_bytes_recursive: Option<Vec<Transfer>>,
}

#[derive(Deserialize)]
struct Transfer {
    op: String,
    value: u64,
}

impl Memory {
    /// What `docker stats` shows: without the files that can be forgotten at any time.
    fn used(&self) -> Option<u64> {
        let names = ["total_inactive_file", "inactive_file"];
        let cache = names.iter().find_map(|name| self.stats.get(*name)).copied().unwrap_or_default();
        self.usage.map(|usage| usage.saturating_sub(cache))
    }
}

impl From<Sample> for Usage {
    fn from(sample: Sample) -> Self {
        if sample.read == NEVER {
            return Self::default();
        }
        let networks = sample.networks.as_ref();
        let network = |bytes: fn(&Network) -> u64| Some(networks?.values().map(bytes).sum());
        let transfers = sample.blkio_stats.io_service_bytes_recursive.unwrap_or_default();
        // No transfers yet, or a control group that does not count them: the Engine answers both alike.
        let disk = |op: &str| {
            let is_op = |one: &&Transfer| one.op.eq_ignore_ascii_case(op);
            (!transfers.is_empty()).then(|| transfers.iter().filter(is_op).map(|one| one.value).sum())
        };
        // A processor of a container counts for centuries before this loses a microsecond.
        #[allow(clippy::cast_precision_loss)]
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        Self {
            processor_seconds: sample.cpu_stats.cpu_usage.total_usage.map(seconds),
            memory_bytes: sample.memory_stats.used(),
            memory_limit_bytes: sample.memory_stats.limit,
            network_received_bytes: network(|one| one.rx_bytes),
            network_sent_bytes: network(|one| one.tx_bytes),
            disk_read_bytes: disk("read"),
            disk_written_bytes: disk("write"),
        }
    }
}

#[async_trait]
impl Metrics for Engines {
    async fn usage(&self, id: &str) -> Result<Usage> {
        let (engine, container) = self.locate(id).await?;
        // One sample at once; a stream would wait for a second one.
        let path = query(&format!("/containers/{}/stats", container.id), &[("stream", "0"), ("one-shot", "1")]);
        Ok(engine.get::<Sample>(&path).await?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(text: &str) -> Usage {
        serde_json::from_str::<Sample>(text).unwrap().into()
    }

    /// Of Docker 20.10.24, shortened.
    const VERSION_1: &str = r#"{"read":"2026-11-28T08:18:22.03494519Z","preread":"0001-01-01T00:00:00Z","pids_stats":{"current":1},
        "blkio_stats":{"io_service_bytes_recursive":[{"major":254,"minor":0,"op":"Read","value":5},{"major":254,"minor":0,"op":"Write","value":7},
        {"major":254,"minor":0,"op":"Total","value":12}],"io_serviced_recursive":[]},"num_procs":0,"storage_stats":{},
        "cpu_stats":{"cpu_usage":{"total_usage":42003556,"percpu_usage":[11587147,30416409],"usage_in_kernelmode":20000000,"usage_in_usermode":20000000},
        "system_cpu_usage":55590310000000,"online_cpus":2},
        "memory_stats":{"usage":3579904,"max_usage":5505024,"stats":{"cache":3149824,"inactive_file":1,"total_inactive_file":3145728},"limit":25276059648},
        "networks":{"eth0":{"rx_bytes":1224,"rx_packets":14,"tx_bytes":238},"eth1":{"rx_bytes":1,"tx_bytes":2}}}"#;

    /// As the documentation of the Engine's API has it for version 2.
    const VERSION_2: &str = r#"{"read":"2026-11-28T08:18:22Z","blkio_stats":{"io_service_bytes_recursive":[{"major":254,"minor":0,"op":"read","value":5},
        {"major":254,"minor":0,"op":"write","value":7}],"io_serviced_recursive":null},
        "cpu_stats":{"cpu_usage":{"total_usage":42003556000,"usage_in_kernelmode":1,"usage_in_usermode":2},"system_cpu_usage":3,"online_cpus":2},
        "memory_stats":{"usage":3579904,"stats":{"anon":4096,"file":3149824,"inactive_file":3145728},"limit":25276059648}}"#;

    #[test]
    fn both_versions_of_control_groups_are_read() {
        let expected = Usage {
            processor_seconds: Some(0.042_003_556),
            memory_bytes: Some(434_176),
            memory_limit_bytes: Some(25_276_059_648),
            network_received_bytes: Some(1225),
            network_sent_bytes: Some(240),
            disk_read_bytes: Some(5),
            disk_written_bytes: Some(7),
        };
        assert_eq!(usage(VERSION_1), expected);
        let (network_received_bytes, network_sent_bytes) = (None, None);
        let processor_seconds = Some(42.003_556);
        assert_eq!(
            usage(VERSION_2),
            Usage { processor_seconds, network_received_bytes, network_sent_bytes, ..expected }
        );
    }

    #[test]
    fn a_container_that_does_not_run_uses_nothing_known() {
        let text = r#"{"read":"0001-01-01T00:00:00Z","blkio_stats":{"io_service_bytes_recursive":null},
            "cpu_stats":{"cpu_usage":{"total_usage":0}},"memory_stats":{}}"#;
        assert_eq!(usage(text), Usage::default());
        assert_eq!(usage(r#"{"read":"2026-11-28T08:18:22Z"}"#), Usage::default());
        assert!(serde_json::from_str::<Sample>("{}").is_err());
    }
}
