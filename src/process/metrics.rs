//! The HTTP paths of the metrics (IO).

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{self, Request},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::process::{
    peer::Caller,
    review::{Decision, Reviewer},
};

/// The media type of the text: that of `OpenMetrics`.
const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The paths of the metrics server, which shows this text: nothing without the permission to get `/metrics`.
pub fn routes(text: impl Fn() -> String + Clone + Send + Sync + 'static, reviewer: Reviewer) -> Router {
    let exposition = move || async move { ([(header::CONTENT_TYPE, MEDIA_TYPE)], text()) };
    Router::new().route("/metrics", get(exposition)).layer(middleware::from_fn_with_state(Arc::new(reviewer), reviewed))
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
