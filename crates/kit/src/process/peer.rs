//! The clients of a server, for its limits: their addresses, and whether their requests were allowed.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The address of a client. An IPv6 address counts as its network of 64 bits, because a single host may use all its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        // An IPv6 socket maps all IPv4 clients to addresses of one network.
        match address.to_canonical() {
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()),
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// The client of a connection, an extension of its requests.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The address of the client.
    pub peer: Peer,
    has_proven: Arc<AtomicBool>,
}

impl Caller {
    /// Creates an unproven client with an address.
    pub fn new(address: IpAddr) -> Self {
        Self { peer: address.into(), has_proven: Arc::default() }
    }

    /// Notes that a request of the client was allowed.
    pub fn prove(&self) {
        self.has_proven.store(true, Ordering::Relaxed);
    }

    /// Whether a request of the client was allowed.
    pub fn has_proven(&self) -> bool {
        self.has_proven.load(Ordering::Relaxed)
    }
}

/// The maximum number of reviews of a peer within a period, and of a proven peer. Other clients may share its address.
const REVIEWS: usize = 5;
const PROVEN_REVIEWS: usize = 50;
const PERIOD: Duration = Duration::from_secs(10);

/// The time for which a peer counts as proven. It exceeds the usual minute between two scrapes, and the lifetime of a cached review.
/// Otherwise both would end before the next scrape, and other clients with the same address could use up its reviews.
pub const PROVEN_PERIOD: Duration = Duration::from_secs(5 * 60);

const REMEMBERED: usize = 256;

/// The recent reviews of each peer. Every client on the network of the host can send tokens, and each unknown token causes a request
/// to the API server.
#[derive(Debug, Default)]
pub struct Reviews(HashMap<Peer, RecentReviews>);

#[derive(Debug)]
struct RecentReviews {
    /// The end of the period, and the number of reviews in it.
    until: Instant,
    reviews: usize,
    /// The time until which the peer counts as proven.
    proven_until: Option<Instant>,
}

impl RecentReviews {
    fn has_proven(&self, now: Instant) -> bool {
        self.proven_until.is_some_and(|until| until > now)
    }
}

impl Reviews {
    /// Whether a peer may have a further review. Counts the review.
    pub fn allow(&mut self, peer: Peer, now: Instant) -> bool {
        let lately = self.lately(peer, now);
        let most = if lately.has_proven(now) { PROVEN_REVIEWS } else { REVIEWS };
        let is_allowed = lately.reviews < most;
        lately.reviews += usize::from(is_allowed);
        is_allowed
    }

    /// Notes that a request of the peer was allowed.
    pub fn prove(&mut self, peer: Peer, now: Instant) {
        self.lately(peer, now).proven_until = Some(now + PROVEN_PERIOD);
    }

    /// Returns the entry of a peer, in a period that has not ended.
    fn lately(&mut self, peer: Peer, now: Instant) -> &mut RecentReviews {
        self.0.retain(|_, lately| lately.until > now || lately.has_proven(now));
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&peer) {
            // A proven peer stays: a client with invalid tokens could fill the memory.
            let unproven = self.0.iter().filter(|(_, lately)| !lately.has_proven(now));
            if let Some(first) = unproven.min_by_key(|(_, lately)| lately.until).map(|(peer, _)| *peer) {
                self.0.remove(&first);
            }
        }
        let new = || RecentReviews { until: now + PERIOD, reviews: 0, proven_until: None };
        let lately = self.0.entry(peer).or_insert_with(new);
        if lately.until <= now {
            *lately = RecentReviews { proven_until: lately.proven_until, ..new() };
        }
        lately
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        address.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer_and_an_address_of_ipv4_is_one() {
        assert_eq!(peer("2001:db8:0:1::1"), peer("2001:db8:0:1:ffff:ffff:ffff:ffff"));
        assert_ne!(peer("2001:db8:0:1::1"), peer("2001:db8:0:2::1"));
        assert_ne!(peer("::ffff:10.0.0.1"), peer("::ffff:10.0.0.2"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
    }

    #[test]
    fn who_proves_nothing_gets_few_reviews() {
        let (mut reviews, start) = (Reviews::default(), Instant::now());
        let [stranger, other] = ["10.0.0.1", "10.0.0.2"].map(peer);
        let allowed = |reviews: &mut Reviews, peer, at| (0..80).filter(|_| reviews.allow(peer, at)).count();
        assert_eq!(allowed(&mut reviews, stranger, start), REVIEWS);
        assert_eq!(allowed(&mut reviews, other, start), REVIEWS, "another peer has its own");
        reviews.prove(other, start);
        assert_eq!(allowed(&mut reviews, other, start), PROVEN_REVIEWS - REVIEWS, "in the same period");
        assert_eq!(allowed(&mut reviews, stranger, start + PERIOD), REVIEWS, "a period later");
        assert_eq!(allowed(&mut reviews, other, start + PROVEN_PERIOD), REVIEWS, "it has shown nothing for long");
    }

    #[test]
    fn who_has_proven_something_gets_many_reviews_until_long_after_the_next_scrape() {
        let (mut reviews, start) = (Reviews::default(), Instant::now());
        let prometheus = peer("10.0.0.1");
        let allowed = |reviews: &mut Reviews, at| (0..80).filter(|_| reviews.allow(prometheus, at)).count();
        reviews.prove(prometheus, start);
        for seconds in [0, 10, 60, 120, 299] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(allowed(&mut reviews, now), PROVEN_REVIEWS, "{seconds}");
            assert_eq!(allowed(&mut reviews, now + Duration::from_millis(1)), 0, "{seconds}: in the same period");
        }
    }

    #[test]
    fn the_memory_is_bounded_and_who_has_proven_something_stays_in_it() {
        let (mut reviews, start) = (Reviews::default(), Instant::now());
        let prometheus = peer("10.0.0.1");
        reviews.prove(prometheus, start);
        for n in 0..2 * REMEMBERED {
            reviews.allow(peer(&format!("2001:db8:0:{n:x}::1")), start);
        }
        assert_eq!(reviews.0.len(), REMEMBERED);
        assert!((0..8).all(|_| reviews.allow(prometheus, start)));
    }
}
