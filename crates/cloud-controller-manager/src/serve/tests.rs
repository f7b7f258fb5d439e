use std::time::Duration;

use axum::{
    Extension,
    body::Body,
    http::{Request, header},
    routing::post,
};
use ccm_kit::process::{
    leadership::{Deadline, Now},
    peer::Caller,
};
use clap::{Args, Command, FromArgMatches};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;

fn flags(arguments: &str) -> ServingFlags {
    let command = ServingFlags::augment_args(Command::new("x"));
    let matches = command.try_get_matches_from(["x"].into_iter().chain(arguments.split_whitespace())).unwrap();
    ServingFlags::from_arg_matches(&matches).unwrap()
}

/// An API server that knows the tokens `may` and `other`. Only the user of `may` may get the metrics.
fn api_server() -> Client {
    let tokens = |body: String| async move {
        let mut review: Value = serde_json::from_str(&body).unwrap();
        let token = review["spec"]["token"].clone();
        let is_known = token == "may" || token == "other";
        review["status"] = json!({"authenticated": is_known, "user": {"username": token}});
        (StatusCode::CREATED, review.to_string())
    };
    let accesses = |body: String| async move {
        let mut review: Value = serde_json::from_str(&body).unwrap();
        let is_allowed = review["spec"]["user"] == "may"
            && review["spec"]["nonResourceAttributes"] == json!({"path": "/metrics", "verb": "get"});
        review["status"] = json!({"allowed": is_allowed});
        (StatusCode::CREATED, review.to_string())
    };
    let router = Router::new()
        .route("/apis/authentication.k8s.io/v1/tokenreviews", post(tokens))
        .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(accesses));
    Client::new(router, "own")
}

/// The answer to a path, with a token if there is one.
async fn get(routes: &Router, path: &str, token: Option<&str>) -> (u16, String) {
    let mut request = Request::get(path);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let routes = routes.clone().layer(Extension(Caller::new([127, 0, 0, 1].into())));
    let response = routes.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

fn leading() -> Leadership {
    Leadership::Leading(Deadline::after(Now::read(), Duration::from_secs(60)))
}

#[tokio::test]
async fn health_is_for_everybody_and_metrics_are_for_who_may_get_them() {
    let readiness = Readiness { leadership: watch::channel(leading()).1, cloud: watch::channel(None).1 };
    let routes = routes(&flags(""), readiness, &Metrics::new("fake"), api_server());
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(get(&routes, path, None).await, (200, "ok".to_owned()), "{path}");
    }
    for (token, code) in [(None, 401), (Some("wrong"), 401), (Some("other"), 403), (Some("may"), 200)] {
        let (answered, body) = get(&routes, "/metrics", token).await;
        assert_eq!(answered, code, "{token:?}");
        assert_eq!(body.contains("process_open_fds"), code == 200, "{token:?}");
    }
    // Nothing else is there, and only who may get it learns that.
    assert_eq!(get(&routes, "/configz", None).await.0, 401);
    assert_eq!(get(&routes, "/configz", Some("may")).await.0, 403);
}

#[tokio::test]
async fn metrics_are_open_if_the_flag_says_so() {
    for (paths, is_open) in
        [("/healthz,/livez,/readyz,/metrics", true), ("/*", true), ("/metricsx", false), ("/healthz", false)]
    {
        let readiness = Readiness { leadership: watch::channel(leading()).1, cloud: watch::channel(None).1 };
        let flags = flags(&format!("--authorization-always-allow-paths={paths}"));
        let routes = routes(&flags, readiness, &Metrics::new("fake"), api_server());
        assert_eq!(get(&routes, "/metrics", None).await.0 == 200, is_open, "{paths}");
    }
}

#[tokio::test]
async fn readiness_says_whether_the_process_works_or_waits_for_another_one() {
    let problem = || Some("no answer".to_owned());
    for (leadership, cloud, code) in [
        (leading(), None, 200),
        (leading(), problem(), 503),
        (Leadership::Waiting(None), None, 200),
        // It was the leader before.
        (Leadership::Waiting(None), problem(), 200),
        (Leadership::Waiting(problem()), None, 503),
    ] {
        let case = format!("{leadership:?} {cloud:?}");
        let readiness = Readiness { leadership: watch::channel(leadership).1, cloud: watch::channel(cloud).1 };
        let routes = routes(&flags(""), readiness, &Metrics::new("fake"), api_server());
        let (answered, body) = get(&routes, "/readyz", None).await;
        assert_eq!(answered, code, "{case}");
        assert!(!body.contains("no answer"), "{case}");
        assert_eq!(get(&routes, "/healthz", None).await.0, 200, "{case}");
    }
}

#[test]
fn the_address_is_that_of_the_flags() {
    for (arguments, address) in [
        ("", ":10258"),
        ("--bind-address=::", ":10258"),
        ("--bind-address=127.0.0.1 --secure-port=1234", "127.0.0.1:1234"),
        ("--bind-address=fd00::1", "[fd00::1]:10258"),
    ] {
        assert_eq!(flags(arguments).address(), address, "{arguments}");
    }
    assert_eq!(flags("--tls-min-version=VersionTLS13").suites(), Vec::<String>::new());
    assert_eq!(flags("--tls-cipher-suites=A,B").suites(), ["A", "B"]);
    assert_eq!(flags("").suites().len(), SUITES.len());
}
