//! Chooses the cluster and user of a kubeconfig, or of the Pod, as kubectl does (IO).

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use axum::http::Uri;
use kube::{
    Config,
    config::{self, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use secrecy::ExposeSecret;

use crate::{
    files,
    text::{kubectl::Access, mask},
};

/// Loads the configuration from this kubeconfig, else from `KUBECONFIG` or `~/.kube/config`, else from the Pod.
///
/// Fails if there is none, or if what it chooses is missing or not supported.
pub async fn load(access: &Access) -> anyhow::Result<Config> {
    let (mut kubeconfig, name) = match &access.kubeconfig {
        Some(path) => {
            let name = path.display().to_string();
            let read = Kubeconfig::read_from(path).map_err(|error| match error {
                // It has the path, too.
                KubeconfigError::ReadConfig(cause, _) => cause.into(),
                error => without_values(error),
            });
            (read.with_context(|| format!("failed to read the kubeconfig {name}"))?, name)
        }
        None if is_there() => {
            let read = Kubeconfig::read().map_err(without_values);
            (
                read.context("failed to read the kubeconfig of KUBECONFIG or ~/.kube/config")?,
                "of the environment".into(),
            )
        }
        None => {
            if let Some(flag) = access.choice() {
                bail!("--{flag} needs a kubeconfig, and there is none: give --kubeconfig or set KUBECONFIG");
            }
            return Config::incluster()
                .context("there is no kubeconfig, and no credentials of a Pod: give --kubeconfig, or set KUBECONFIG");
        }
    };
    // A proxy of the environment is for hosts outside the cluster, so it is ignored.
    if let Some(proxy) = proxy(&kubeconfig, access) {
        bail!("the cluster of the kubeconfig {name} needs the proxy {proxy} (proxy-url), which is not supported");
    }
    let chosen = access.context.as_ref().or(kubeconfig.current_context.as_ref()).filter(|chosen| !chosen.is_empty());
    let names = || kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect::<Vec<_>>().join(", ");
    match (chosen, &access.cluster, &access.user) {
        (Some(chosen), ..) if kubeconfig.contexts.iter().all(|context| context.name != *chosen) => {
            bail!("the kubeconfig {name} has no context {chosen:?}; it has: {}", names());
        }
        (None, cluster, user) if cluster.is_none() || user.is_none() => {
            bail!("the kubeconfig {name} has no current context: give --context; it has: {}", names());
        }
        _ => {}
    }
    if let Some(cluster) = access.cluster.as_deref().or_else(|| Some(context(&kubeconfig, access)?.cluster.as_str()))
        && kubeconfig.clusters.iter().all(|one| one.name != cluster)
    {
        bail!("the kubeconfig {name} has no cluster {cluster:?}");
    }
    // Without credentials the requests would be anonymous.
    if let Some(user) = user(&kubeconfig, access)
        && !kubeconfig.auth_infos.iter().any(|info| info.name == user)
    {
        bail!("the kubeconfig {name} has no user {user:?}");
    }
    if let Some(server) = chosen_cluster(&kubeconfig, access).and_then(|cluster| cluster.server.as_deref())
        && !server.parse::<Uri>().is_ok_and(|uri| matches!(uri.scheme_str(), Some("https" | "http")))
    {
        bail!("the kubeconfig {name} has the server {server:?}, which is no URL: write https://HOST:PORT");
    }
    let user = user(&kubeconfig, access).map(str::to_owned);
    let chosen = kubeconfig.auth_infos.iter_mut().find(|info| Some(&info.name) == user.as_ref());
    if let Some(info) = chosen.and_then(|info| info.auth_info.as_mut()) {
        check_auth_provider(info)
            .and_then(|()| set_token(info))
            .with_context(|| format!("failed to use the user of the kubeconfig {name}"))?;
    }
    let Access { context, cluster, user, .. } = access.clone();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions { context, cluster, user }).await;
    config.with_context(|| format!("failed to use the kubeconfig {name}"))
}

/// Whether a kubeconfig should be used. An invalid kubeconfig must not lead to the credentials of the Pod.
pub fn is_there() -> bool {
    std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty())
        || std::env::home_dir().is_some_and(|home| home.join(".kube/config").exists())
}

/// Returns the error of the library without the lines of the file, which contain credentials.
fn without_values(error: KubeconfigError) -> anyhow::Error {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => anyhow!("invalid YAML, or not a kubeconfig, at {}:{}", at.line(), at.column()),
            None => anyhow!("invalid YAML, or not a kubeconfig"),
        },
        error => error.into(),
    }
}

/// Refuses an `auth-provider` that kubectl refuses as well. The library would run its command, for which `crates/no-jsonpath` stands in.
fn check_auth_provider(info: &config::AuthInfo) -> anyhow::Result<()> {
    match &info.auth_provider {
        Some(provider) if provider.name != "oidc" => bail!(
            "its auth-provider {:?} is not supported, as in kubectl since version 1.26: use a credential plugin (exec)",
            provider.name
        ),
        _ => Ok(()),
    }
}

/// Reads the token as kubectl does: a file comes first, an empty token counts as none, and surrounding blanks are ignored. A block
/// scalar and most editors' files end in a line break.
fn set_token(info: &mut config::AuthInfo) -> anyhow::Result<()> {
    let inline = info.token.take().map(|token| token.expose_secret().trim().to_owned());
    let file = info.token_file.clone().filter(|path| !path.is_empty());
    let of_file = file
        .as_ref()
        .map(|path| files::read_text(Path::new(path)).with_context(|| format!("failed to read the token from {path}")));
    let of_file = of_file.transpose()?;
    let token = of_file.as_ref().map(|text| text.trim().to_owned()).or(inline).filter(|token| !token.is_empty());
    if token.as_ref().is_some_and(|token| token.chars().any(char::is_control)) {
        bail!("its token contains a line break or another control character");
    }
    // The client reads the file again each minute, and does not trim it.
    let is_usable_file = of_file.is_some_and(|text| Some(&text) == token.as_ref());
    info.token_file = file.filter(|_| is_usable_file);
    info.token = token.filter(|_| !is_usable_file).map(Into::into);
    Ok(())
}

fn user<'a>(kubeconfig: &'a Kubeconfig, access: &'a Access) -> Option<&'a str> {
    access.user.as_deref().or_else(|| context(kubeconfig, access)?.user.as_deref()).filter(|user| !user.is_empty())
}

fn context<'a>(kubeconfig: &'a Kubeconfig, access: &Access) -> Option<&'a config::Context> {
    let chosen = access.context.as_ref().or(kubeconfig.current_context.as_ref())?;
    kubeconfig.contexts.iter().find(|context| context.name == *chosen)?.context.as_ref()
}

fn chosen_cluster<'a>(kubeconfig: &'a Kubeconfig, access: &Access) -> Option<&'a config::Cluster> {
    let name = access.cluster.as_ref().or_else(|| Some(&context(kubeconfig, access)?.cluster))?;
    kubeconfig.clusters.iter().find(|cluster| cluster.name == *name)?.cluster.as_ref()
}

/// Returns the proxy of the chosen cluster, without user and password.
fn proxy(kubeconfig: &Kubeconfig, access: &Access) -> Option<String> {
    let url = chosen_cluster(kubeconfig, access)?.proxy_url.as_deref().filter(|url| !url.is_empty())?;
    Some(url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, host)| format!("{}@{host}", mask::MASK)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_is_taken_as_kubectl_takes_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let path = file.to_str().unwrap();
        let taken = |text: &str, inline: Option<&str>| {
            std::fs::write(&file, text).unwrap();
            let token = inline.map(|token| token.to_owned().into());
            let mut info = config::AuthInfo { token, token_file: Some(path.into()), ..config::AuthInfo::default() };
            set_token(&mut info).map_err(|error| error.to_string())?;
            let inline = info.token.map(|token| token.expose_secret().to_owned());
            Ok::<_, String>((inline, info.token_file.is_some()))
        };
        assert_eq!(taken("abc", None), Ok((None, true)), "the client reads it again");
        assert_eq!(taken("abc\n", None), Ok((Some("abc".into()), false)), "the client would not trim it");
        assert_eq!(taken("abc", Some("")), Ok((None, true)));
        assert_eq!(taken("abc", Some("other")), Ok((None, true)), "the file comes first");
        assert!(taken("a\nb", None).unwrap_err().contains("line break"));
        let mut info = config::AuthInfo { token: Some(" \n".to_owned().into()), ..config::AuthInfo::default() };
        set_token(&mut info).unwrap();
        assert!(info.token.is_none(), "an empty token would be that of nobody");
    }

    #[test]
    fn an_auth_provider_that_kubectl_has_removed_is_refused() {
        let checked = |name: &str| {
            let info: config::AuthInfo = serde_json::from_value(json!({"auth-provider": {"name": name}})).unwrap();
            check_auth_provider(&info)
        };
        assert!(checked("gcp").unwrap_err().to_string().contains("credential plugin"));
        assert!(checked("oidc").is_ok());
    }

    #[test]
    fn only_the_proxy_of_the_current_context_counts() {
        let proxy_of = |current: &str, access: &Access| {
            let kubeconfig = json!({
                "current-context": current,
                "contexts": [
                    {"name": "one", "context": {"cluster": "direct", "user": "u"}},
                    {"name": "two", "context": {"cluster": "behind", "user": "u"}},
                ],
                "clusters": [
                    {"name": "direct", "cluster": {"server": "https://a"}},
                    {"name": "behind", "cluster": {"server": "https://b", "proxy-url": "http://proxy:3128"}},
                ],
            });
            let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
            proxy(&kubeconfig, access)
        };
        let direct = Access::default();
        assert_eq!(proxy_of("one", &direct), None);
        assert_eq!(proxy_of("two", &direct).as_deref(), Some("http://proxy:3128"));
        let context = Access { context: Some("two".into()), ..Access::default() };
        assert!(proxy_of("one", &context).is_some());
        let cluster = Access { cluster: Some("direct".into()), ..context };
        assert_eq!(proxy_of("two", &cluster), None);
    }
}
