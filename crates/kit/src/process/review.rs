//! Authorizes requests for the metrics (IO): the API server reviews the bearer token of a request, and the permission
//! of its user.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Extension, Router,
    extract::{self, Request},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::Instant};
use tracing::debug;

use crate::{
    cluster::request::{self, Cause},
    process::peer::{Caller, PROVEN_PERIOD, Reviews},
};

/// The lifetime of an answer, as in the delegating authenticator of an aggregated API server: a revoked permission works for one more
/// minute, and a new one takes effect after ten seconds.
const ALLOWED_PERIOD: Duration = Duration::from_secs(60);
const DENIED_PERIOD: Duration = Duration::from_secs(10);

const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum numbers of concurrent and of cached reviews. Every client can send tokens.
const REVIEWS: usize = 4;
const REMEMBERED: usize = 256;

const LONGEST_TOKEN: usize = 16 << 10;

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The user may do this.
    Allowed,
    /// The token is not valid in the cluster.
    Unauthenticated,
    /// The user may not do this.
    Forbidden,
    /// The API server did not answer.
    Unknown,
    /// The client has sent too many tokens without a valid one.
    TooMany,
}

/// Asks the API server for reviews, and caches them.
pub struct Reviewer {
    client: Client,
    running: Semaphore,
    /// The recent reviews of each client.
    reviews: Mutex<Reviews>,
    /// The cached reviews by the digests of the tokens, which are not kept.
    known: Mutex<HashMap<[u8; 32], Answer>>,
}

#[derive(Clone, Copy)]
struct Answer {
    decision: Decision,
    at: Instant,
}

impl Answer {
    /// Whether the cached review is used without a new one.
    fn is_new(&self) -> bool {
        let period = if self.decision == Decision::Allowed { ALLOWED_PERIOD } else { DENIED_PERIOD };
        Instant::now() < self.at + period
    }

    /// Whether the review has allowed a request recently.
    fn has_allowed(&self) -> bool {
        self.decision == Decision::Allowed && Instant::now() < self.at + PROVEN_PERIOD
    }
}

impl Reviewer {
    /// A reviewer without cached reviews.
    pub fn new(client: Client) -> Self {
        Self { client, running: Semaphore::new(REVIEWS), reviews: Mutex::default(), known: Mutex::default() }
    }

    /// Decides whether the owner of a token may get a path of this server. An allowed request proves the client.
    pub async fn get(&self, caller: &Caller, token: &str, path: &str) -> Decision {
        let decision = self.decision(caller, token, path).await;
        if decision == Decision::Allowed {
            caller.prove();
            self.reviews.lock().unwrap_or_else(PoisonError::into_inner).prove(caller.peer, Instant::now().into_std());
        }
        decision
    }

    async fn decision(&self, caller: &Caller, token: &str, path: &str) -> Decision {
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Decision::Unauthenticated;
        }
        let key: [u8; 32] = Sha256::new().chain_update(path).chain_update([0]).chain_update(token).finalize().into();
        let known = self.known(&key);
        if let Some(answer) = known.filter(Answer::is_new) {
            return answer.decision;
        }
        // A recently allowed token is not one of the invalid tokens that other clients may send from the same address.
        if !known.is_some_and(|answer| answer.has_allowed()) && !self.counts(caller) {
            return Decision::TooMany;
        }
        let Ok(_permit) = self.running.acquire().await else { return Decision::Unknown };
        // Another request may have cached the review meanwhile.
        if let Some(answer) = self.known(&key).filter(Answer::is_new) {
            return answer.decision;
        }
        let decision = self.review(token, path).await.unwrap_or_else(|error| {
            debug!("failed to review a request for {path}: {error}");
            Decision::Unknown
        });
        if decision != Decision::Unknown {
            self.remember(key, decision);
        }
        decision
    }

    /// Whether a client may have a further review. Counts the review.
    fn counts(&self, caller: &Caller) -> bool {
        self.reviews.lock().unwrap_or_else(PoisonError::into_inner).allow(caller.peer, Instant::now().into_std())
    }

    fn known(&self, key: &[u8; 32]) -> Option<Answer> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    fn remember(&self, key: [u8; 32], decision: Decision) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_, answer| answer.is_new() || answer.has_allowed());
        }
        if known.len() >= REMEMBERED {
            // Denied reviews are removed first: a client with invalid tokens could fill the memory.
            known.retain(|_, answer| answer.has_allowed());
        }
        if known.len() >= REMEMBERED {
            known.retain(|_, answer| answer.is_new());
        }
        if known.len() < REMEMBERED {
            known.insert(key, Answer { decision, at: Instant::now() });
        }
    }

    async fn review(&self, token: &str, path: &str) -> Result<Decision, Cause> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let review = request::send(Some(REVIEW_TIMEOUT), reviews.create(&PostParams::default(), &review)).await?;
        let status = review.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Decision::Unauthenticated);
        };
        let review = SubjectAccessReview { spec: access(user, path), ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = request::send(Some(REVIEW_TIMEOUT), reviews.create(&PostParams::default(), &review)).await?;
        let is_allowed = review.status.is_some_and(|status| status.allowed);
        Ok(if is_allowed { Decision::Allowed } else { Decision::Forbidden })
    }
}

fn access(user: UserInfo, path: &str) -> SubjectAccessReviewSpec {
    let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".into()) };
    SubjectAccessReviewSpec {
        non_resource_attributes: Some(attributes),
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        ..SubjectAccessReviewSpec::default()
    }
}

/// The media type of `OpenMetrics`.
const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The routes of the metrics server. It returns the text only with the permission to get `/metrics`.
pub fn routes(text: impl Fn() -> String + Clone + Send + Sync + 'static, reviewer: Reviewer) -> Router {
    open_routes(text).layer(middleware::from_fn_with_state(Arc::new(reviewer), reviewed))
}

/// The routes of a metrics server that returns the text to everybody.
pub fn open_routes(text: impl Fn() -> String + Clone + Send + Sync + 'static) -> Router {
    let exposition = move || async move { ([(header::CONTENT_TYPE, MEDIA_TYPE)], text()) };
    Router::new().route("/metrics", get(exposition))
}

async fn reviewed(
    extract::State(reviewer): extract::State<Arc<Reviewer>>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim) else {
        return (StatusCode::UNAUTHORIZED, "a bearer token is needed\n").into_response();
    };
    match reviewer.get(&caller, token, request.uri().path()).await {
        Decision::Allowed => next.run(request).await,
        Decision::Unauthenticated => (StatusCode::UNAUTHORIZED, "the token is not valid\n").into_response(),
        Decision::Forbidden => (StatusCode::FORBIDDEN, "the user may not get this path\n").into_response(),
        Decision::Unknown => (StatusCode::SERVICE_UNAVAILABLE, "the API server could not be asked\n").into_response(),
        Decision::TooMany => (StatusCode::TOO_MANY_REQUESTS, "too many tokens, and none is valid\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::{
        Extension, Router,
        body::Body,
        http::{Request, StatusCode, header},
        routing::post,
    };
    use serde_json::{Value, json};
    use tower::ServiceExt;

    use super::*;

    /// An API server that accepts the token `valid`, and the number of its reviews.
    fn api_server() -> (Client, Arc<AtomicUsize>) {
        let made = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&made);
        let tokens = |body: String| async move {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut review: Value = serde_json::from_str(&body).unwrap();
            let is_valid = review["spec"]["token"] == "valid";
            review["status"] = json!({"authenticated": is_valid, "user": {"username": "monitoring"}});
            (StatusCode::CREATED, review.to_string())
        };
        let accesses = |body: String| async move {
            let mut review: Value = serde_json::from_str(&body).unwrap();
            review["status"] = json!({"allowed": true});
            (StatusCode::CREATED, review.to_string())
        };
        let router = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(tokens))
            .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(accesses));
        (Client::new(router, "own"), made)
    }

    /// The answer to a client with a token.
    async fn get(routes: &Router, caller: &Caller, token: &str) -> StatusCode {
        let request = Request::get("/metrics").header(header::AUTHORIZATION, format!("Bearer {token}"));
        let routes = routes.clone().layer(Extension(caller.clone()));
        routes.oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_tokens_of_its_address_take_no_scrape_from_prometheus() {
        let (client, made) = api_server();
        let routes = routes(String::new, Reviewer::new(client));
        let [prometheus, neighbor] = ["10.0.0.1"; 2].map(|address| Caller::new(address.parse().unwrap()));
        for scrape in 0..4 {
            assert_eq!(get(&routes, &prometheus, "valid").await, StatusCode::OK, "{scrape}");
            // For the pause between two scrapes, which is as long as the lifetime of an answer.
            for period in 0..6 {
                let before = made.load(Ordering::Relaxed);
                for n in 0..60 {
                    get(&routes, &neighbor, &format!("made-up-{scrape}-{period}-{n}")).await;
                }
                assert!(made.load(Ordering::Relaxed) - before <= 50, "{scrape} {period}");
                assert_eq!(
                    get(&routes, &neighbor, "one more").await,
                    StatusCode::TOO_MANY_REQUESTS,
                    "{scrape} {period}"
                );
                tokio::time::advance(Duration::from_secs(10)).await;
            }
            for n in 0..60 {
                get(&routes, &neighbor, &format!("made-up-{scrape}-{n}")).await;
            }
        }
    }

    #[tokio::test]
    async fn made_up_tokens_are_few_requests_and_a_valid_one_proves_its_client() {
        let (client, made) = api_server();
        let routes = routes(String::new, Reviewer::new(client));
        let get = async |caller: &Caller, token: &str| get(&routes, caller, token).await;
        let [stranger, prometheus] = ["fd00::1", "fd00:0:0:1::1"].map(|address| Caller::new(address.parse().unwrap()));
        for n in 0..8 {
            let expected = if n < 5 { StatusCode::UNAUTHORIZED } else { StatusCode::TOO_MANY_REQUESTS };
            assert_eq!(get(&stranger, &format!("made-up-{n}")).await, expected, "{n}");
        }
        let neighbor = Caller::new("fd00::2".parse().unwrap());
        assert_eq!(get(&neighbor, "valid").await, StatusCode::TOO_MANY_REQUESTS, "of the same network");
        assert_eq!(made.load(Ordering::Relaxed), 5);
        assert!(![&stranger, &neighbor, &prometheus].iter().any(|caller| caller.has_proven()));

        assert_eq!(get(&prometheus, "valid").await, StatusCode::OK);
        assert!(prometheus.has_proven());
        for n in 0..8 {
            assert_eq!(get(&prometheus, &format!("rotated-{n}")).await, StatusCode::UNAUTHORIZED, "{n}");
        }
        assert_eq!(get(&neighbor, "valid").await, StatusCode::OK, "the answer is known");
        assert!(neighbor.has_proven());
    }
}
