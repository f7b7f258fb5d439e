//! The meaning of error texts from a cloud, the API server or a kubelet (pure).

use crate::nodes::{log::misses_api_server, reason::Reason};

/// Lowercase text parts that identify a reason. The first matching row decides, so the most specific rows come first.
pub(super) const SIGNS: &[(Reason, &[&str])] = &[
    (
        Reason::AdmissionDenied,
        &["admission webhook", "validatingadmissionpolicy", "failed calling webhook", "mutatingadmissionpolicy"],
    ),
    (Reason::Forbidden, &["is forbidden: user ", "get token failed", "get or create service account failed"]),
    (
        Reason::NodeIPNotFound,
        &[
            "failed to get node address from cloud provider that matches ip",
            "failed to parse node ip",
            "unable to find suitable ip address for node",
        ],
    ),
    (Reason::NoProviderID, &["does not set node provider id", "provided nil metadata"]),
    (
        Reason::OtherCloudProviderID,
        &[
            "expected prefixes",
            "didn't match expected format",
            "didn't match supported region",
            "provider id wrong format",
            "invalid format for aws instance",
            "invalid scheme for aws instance",
            "is missing a serverid",
            "unexpected providerid format",
            "is missing prefix",
            "provider scheme from providerid",
            "provider name from providerid",
            "provider id does not have",
            "is not a valid cloudscale provider id",
            "is not valid for oci",
            "unknown providername",
        ],
    ),
    (
        Reason::Throttled,
        &[
            "requestlimitexceeded",
            "toomanyrequests",
            "too many requests",
            "ratelimitexceeded",
            "rate_limit_exceeded",
            "rate limit exceeded",
            "rate limit reached",
            "rate limited",
            "throttlingexception",
            "throttling:",
            "ratelimited: ",
            "request was throttled",
            "statuscode: 429",
            "statuscode=429",
            "[429]",
            ": 429 ",
        ],
    ),
    (
        Reason::WrongScope,
        &[
            "datacenter not found",
            "datacenter '",
            "vcenter not found",
            "resourcegroupnotfound",
            "subscriptionnotfound",
            "no vcenter/datacenter",
            "must have at least one vcenter/datacenter",
        ],
    ),
    (
        Reason::CredentialsRefused,
        &[
            "authfailure",
            "invalidcredentials: ",
            "unauthorized",
            "invalidclienttokenid",
            "signaturedoesnotmatch",
            "incompletesignature",
            "expiredtoken",
            "requestexpired",
            "unrecognizedclient",
            "optinrequired",
            "accessdenied",
            "access denied",
            "not authorized",
            "incorrect user name or password",
            "login failure",
            "cannot complete login",
            "credentials not found",
            "username/password is missing",
            "credentials did not have all required values",
            "failed to refresh cached credentials",
            "failed to retrieve credentials",
            "no ec2 imds role found",
            "nocredentialproviders",
            "no valid credential",
            "invalidauthenticationtoken",
            "authorizationfailed",
            "invalid_client",
            "invalid_grant",
            "aadsts",
            "cannot fetch token",
            "authentication failed",
            "unable to authenticate",
            "invalid token",
            "permission_denied",
            "permission denied",
            "insufficientpermissions",
            "no permission",
            "notauthenticated",
            "statuscode: 401",
            "statuscode: 403",
            "statuscode=401",
            "statuscode=403",
            "status code: 401",
            "status code: 403",
            "but got 401",
            "but got 403",
            "error 401",
            "error 403",
            "[401]",
            "[403]",
            ": 401 ",
            ": 403 ",
        ],
    ),
    (
        Reason::CloudUnreachable,
        &[
            "no such host",
            "unavailable: ",
            "timeout: ",
            "server misbehaving",
            "x509:",
            "tls: ",
            "i/o timeout",
            "connection refused",
            "connection reset",
            "no route to host",
            "network is unreachable",
            "proxyconnect",
            "proxy authentication required",
            "context deadline exceeded",
            "client.timeout exceeded",
            "tls handshake timeout",
            "dial tcp",
            ": eof",
            "unexpected eof",
            "service unavailable",
            "bad gateway",
            "gateway timeout",
            "internal server error",
        ],
    ),
    (
        Reason::InstanceNotFound,
        &[
            "invalidinstanceid",
            "could not look up instance id",
            "no instances found for instance",
            "no vm found",
            "vm guest hostname is empty",
            "unable to find vm by",
            "failed to find object",
            "no matching server found",
            "getting droplet by name",
            "not found",
            "notfound",
            "does not exist",
            "could not be found",
            "[404]",
            ": 404 ",
        ],
    ),
];

/// Returns the reason that untrusted text shows.
pub fn of(text: &str) -> Option<Reason> {
    let lower = text.to_lowercase();
    let fits = |(_, words): &&(Reason, &[&str])| words.iter().any(|words| lower.contains(words));
    SIGNS.iter().find(fits).map(|(reason, _)| *reason)
}

/// Returns the reason for a failed attempt, according to the error of the cloud-controller-manager.
pub fn of_attempt(error: &str) -> Reason {
    // Only the API server responds with this word alone; a cloud adds words before it.
    if error == "Unauthorized" {
        return Reason::Forbidden;
    }
    if misses_api_server(error) {
        return Reason::ApiServerUnreachable;
    }
    // A node name may contain any words.
    let named = error.strip_prefix("failed to get instance metadata for node ").and_then(|rest| rest.split_once(": "));
    let error = named.map_or(error, |(_, error)| error);
    // A cloud with the older interface gets two requests. The first one has a providerID, which a waiting node lacks.
    let by_name = error.split_once(", and error by node name: ").and_then(|(_, by_name)| of(by_name));
    by_name.or_else(|| of(error)).unwrap_or(Reason::CauseUnknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors of clouds, in the wording of their libraries.
    const ERRORS: &[(&str, Reason)] = &[
        // AWS.
        (
            "operation error EC2: DescribeInstances, get identity: get credentials: failed to refresh cached credentials, no EC2 \
             IMDS role found, operation error ec2imds: GetMetadata, canceled, context deadline exceeded",
            Reason::CredentialsRefused,
        ),
        (
            "operation error EC2: DescribeInstances, https response error StatusCode: 401, RequestID: 1, api error AuthFailure: \
             AWS was not able to validate the provided access credentials",
            Reason::CredentialsRefused,
        ),
        (
            "operation error EC2: DescribeInstances, exceeded maximum number of attempts, 3, https response error StatusCode: \
             503, RequestID: 1, api error RequestLimitExceeded: Request limit exceeded.",
            Reason::Throttled,
        ),
        ("error finding instance i-1: \"no instances found for instance: i-1\"", Reason::InstanceNotFound),
        (
            "failed to map provider ID to AWS instance ID for node a: Invalid scheme for AWS instance (k3s://a)",
            Reason::OtherCloudProviderID,
        ),
        // vSphere.
        ("No VM found", Reason::InstanceNotFound),
        ("VM Guest hostname is empty", Reason::InstanceNotFound),
        (
            "ServerFaultCode: Cannot complete login due to an incorrect user name or password.",
            Reason::CredentialsRefused,
        ),
        ("Credentials not found", Reason::CredentialsRefused),
        ("datacenter 'DC9' not found", Reason::WrongScope),
        (
            "Post \"https://vc.example.com/sdk\": tls: failed to verify certificate: x509: unknown authority",
            Reason::CloudUnreachable,
        ),
        ("unable to find suitable IP address for node a with IP family [ipv6]", Reason::NodeIPNotFound),
        // Hetzner.
        ("hcloud/instancesv2.InstanceMetadata: unable to authenticate (unauthorized, 1)", Reason::CredentialsRefused),
        (
            "Provider ID does not have one of the the expected prefixes (hcloud://, hrobot://, hcloud://bm-): k3s://a",
            Reason::OtherCloudProviderID,
        ),
        // Azure.
        (
            "Retriable: false, HTTPStatusCode: 401, RawError: {\"error\":{\"code\":\"InvalidAuthenticationToken\"}}",
            Reason::CredentialsRefused,
        ),
        ("Retriable: true, RetryAfter: 20s, HTTPStatusCode: 429, RawError: TooManyRequests", Reason::Throttled),
        // GCP.
        (
            "googleapi: Error 403: Required 'compute.instances.get' permission for 'projects/p', forbidden",
            Reason::CredentialsRefused,
        ),
        ("googleapi: Error 403: Rate Limit Exceeded, rateLimitExceeded", Reason::Throttled),
        (
            "googleapi: Error 404: The resource 'projects/p/zones/z/instances/a' was not found, notFound",
            Reason::InstanceNotFound,
        ),
        // OpenStack.
        (
            "failed to get instance ID from cloud provider: Successfully re-authenticated, but got error executing request: \
             Authentication failed",
            Reason::CredentialsRefused,
        ),
        (
            "error fetching node by provider ID: ProviderID \"\" didn't match expected format \"openstack:///InstanceID\", and \
             error by node name: failed to find object",
            Reason::InstanceNotFound,
        ),
        ("ProviderID \"openstack://b/1\" didn't match supported region \"a\"", Reason::OtherCloudProviderID),
        // DigitalOcean and Linode.
        (
            "GET https://api.digitalocean.com/v2/droplets: 401 (request \"1\") Unable to authenticate you",
            Reason::CredentialsRefused,
        ),
        (
            "determining droplet ID from providerID: provider ID \"k3s://a\" is missing prefix \"digitalocean://\"",
            Reason::OtherCloudProviderID,
        ),
        ("[401] Invalid Token", Reason::CredentialsRefused),
        ("[429] Too Many Requests", Reason::Throttled),
        ("instance not found", Reason::InstanceNotFound),
        // Smaller clouds: Vultr, Cherry Servers, Oxide, cloudscale.ch, OCI, STACKIT.
        ("provider scheme from providerID \"k3s://a\" should be 'vultr://'", Reason::OtherCloudProviderID),
        ("provider name from providerID should be cherryservers, was k3s", Reason::OtherCloudProviderID),
        (
            "failed parsing provider id k3s://a: provider id does not have 'oxide://' prefix",
            Reason::OtherCloudProviderID,
        ),
        (
            "unable to find node a: k3s://a is not a valid cloudscale provider id: not a cloudscale providerID: k3s://a",
            Reason::OtherCloudProviderID,
        ),
        ("MapProviderIDToResourceOCID: provider ID 'k3s://a' is not valid for oci", Reason::OtherCloudProviderID),
        (
            "failed to get instance: failed to get instance ID from Provider ID: unknown ProviderName",
            Reason::OtherCloudProviderID,
        ),
        // This project's own cloud-controller-manager.
        ("InvalidCredentials: the Engine has the id A, and accountID demands B", Reason::CredentialsRefused),
        ("Unavailable: cannot connect to 10.0.0.1:2376", Reason::CloudUnreachable),
        ("Timeout: get instance: no answer within 30s", Reason::CloudUnreachable),
        ("RateLimited: slow down", Reason::Throttled),
        ("NotFound: no instance has the providerID \"docker:////a\"", Reason::InstanceNotFound),
        // The network.
        (
            "dial tcp: lookup api.hetzner.cloud on 10.96.0.10:53: read udp 10.0.0.1:4->10.96.0.10:53: i/o timeout",
            Reason::CloudUnreachable,
        ),
        ("Get \"https://api.linode.com/v4\": Proxy Authentication Required", Reason::CloudUnreachable),
        ("the moon is full", Reason::CauseUnknown),
    ];

    #[test]
    fn the_words_of_clouds_tell_the_reason() {
        for (error, reason) in ERRORS {
            assert_eq!(of_attempt(error), *reason, "{error}");
            let whole = format!("failed to get instance metadata for node a: {error}");
            assert_eq!(of_attempt(&whole), *reason, "{whole}");
        }
    }

    #[test]
    fn the_words_of_the_api_server_are_not_the_clouds() {
        for (error, reason) in [
            ("Unauthorized", Reason::Forbidden),
            (
                "nodes \"a\" is forbidden: User \"system:serviceaccount:x:y\" cannot update resource \"nodes\"",
                Reason::Forbidden,
            ),
            (
                "nodes \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                Reason::AdmissionDenied,
            ),
            (
                "Internal error occurred: failed calling webhook \"x\": dial tcp 10.0.0.1:443: connection refused",
                Reason::AdmissionDenied,
            ),
            (
                "Put \"https://10.96.0.1:443/api/v1/nodes/a\": dial tcp 10.96.0.1:443: connection refused",
                Reason::ApiServerUnreachable,
            ),
            ("failed to get instance metadata for node tls: the moon is full", Reason::CauseUnknown),
        ] {
            assert_eq!(of_attempt(error), reason, "{error}");
        }
    }

    #[test]
    fn words_are_written_as_they_are_compared_and_none_is_a_part_of_others() {
        for (reason, all) in SIGNS {
            for words in *all {
                assert_eq!(*words, words.to_lowercase(), "{reason}");
                let parts = all.iter().filter(|other| words.contains(**other));
                assert_eq!(parts.count(), 1, "{reason}: {words:?} contains others");
            }
        }
    }
}
