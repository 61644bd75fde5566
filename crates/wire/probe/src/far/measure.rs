//! Measures a path with the help of a far end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use cheetah_kit::random::NoRandomNumbers;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::api::{Arrivals, FarInfo, SendRequest, Token};
use super::client::{FarClient, FarError};
use super::dispersion::{self, ReceivedPacket};
use super::stamped::TimestampingSocket;
use super::train;
use super::trains::TrainPlan;
use crate::clock::Nanos;
use crate::estimate::capacity::Unknown;
use crate::path::{Capacity, FarEnd};
use crate::schedule::due;

/// The most packets that trains there take, all within a second: twice as many if the first turn out to be too large.
pub const PACKETS_THERE_MAX: u32 = (IP_BYTES.len() * TrainPlan::PACKETS) as u32;
/// Packet sizes to try, IP header included: the largest that most paths carry whole, then a size that every path
/// carries.
const IP_BYTES: [u32; 2] = [1_500, 1_280];
/// How long to wait for stragglers.
const STRAGGLERS: Duration = Duration::from_millis(400);
/// The time limit of a train, waiting included, in seconds.
const SECONDS_MAX: u32 = 5;
/// The time limit of all trains in one direction, whatever the far end answers.
const TRAINS_TIME_MAX: Duration = Duration::from_secs(30);
/// The most bulk data sent, in bytes.
const BULK_BYTES_MAX: u64 = 256 << 20;

/// The HTTP status of a refusal.
const FORBIDDEN: u16 = 403;

/// The quantities to measure with a far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarRequest {
    /// Whether to send trains, in both directions.
    pub trains: bool,
    /// How long to send bulk data; zero for none.
    pub bulk_to: Duration,
    /// How long to receive bulk data; zero for none.
    pub bulk_from: Duration,
}

impl Default for FarRequest {
    /// Trains, and a second of bulk data in each direction.
    fn default() -> Self {
        Self { trains: true, bulk_to: Duration::from_secs(1), bulk_from: Duration::from_secs(1) }
    }
}

/// Why trains did not measure a capacity.
#[derive(Debug, thiserror::Error)]
enum TrainsError {
    /// They took too long.
    #[error("the far end did not finish within {} s", TRAINS_TIME_MAX.as_secs())]
    Late,
    /// The far end sends none.
    #[error("its sending rate is limited, so it sends no trains")]
    SendsNone,
    /// The path carries no packets of the smallest size.
    #[error("the path carries no packets of 1280 bytes")]
    TooLarge,
    /// The far end cannot send packets of the smallest size, for the reason that it gives.
    #[error("{0}")]
    NotSent(String),
    /// The far end does not answer as it should.
    #[error(transparent)]
    Far(#[from] FarError),
    /// This machine cannot send, or cannot receive.
    #[error(transparent)]
    Here(#[from] io::Error),
    /// This machine has no random numbers.
    #[error(transparent)]
    NoToken(#[from] NoRandomNumbers),
    /// The process ends.
    #[error(transparent)]
    Ended(#[from] JoinError),
    /// The arrivals do not tell the capacity.
    #[error(transparent)]
    Unknown(#[from] Unknown),
}

/// What is measured with a far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Quantity {
    /// The capacity of the path there.
    #[error("The capacity there, by trains that the far end receives,")]
    CapacityThere,
    /// The capacity of the path back.
    #[error("The capacity back, by trains that the far end sends,")]
    CapacityBack,
    /// The rate at which the far end receives bulk data.
    #[error("TCP throughput there")]
    TcpThere,
    /// The rate at which it sends bulk data.
    #[error("TCP throughput back")]
    TcpBack,
}

/// A quantity that was not measured: a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} was not measured: {why}.")]
pub struct NotMeasured {
    /// The quantity.
    pub what: Quantity,
    /// Why.
    pub why: NoFigure,
}

/// Why a quantity was not measured: a clause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoFigure {
    /// The far end sends nothing but answers, or not to this caller.
    #[error("{0}")]
    Refused(String),
    /// Time was up before the rate was steady.
    #[error("the rate was still growing when time was up, as over long paths")]
    Growing,
    /// The measurement failed.
    #[error("{0}")]
    Failed(String),
}

impl From<FarError> for NoFigure {
    fn from(error: FarError) -> Self {
        match error {
            FarError::Refused { status: FORBIDDEN, .. } => Self::Refused(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<TrainsError> for NoFigure {
    fn from(error: TrainsError) -> Self {
        match error {
            TrainsError::SendsNone => Self::Refused(error.to_string()),
            TrainsError::Far(error) => error.into(),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Measures with the far end at `client`. Calls `failed` for each measurement that failed.
///
/// # Errors
///
/// If there is no far end.
pub async fn measure(
    client: FarClient<'_>,
    request: FarRequest,
    mut failed: impl FnMut(NotMeasured),
) -> Result<FarEnd, FarError> {
    let about = client.about().await?;
    let mut far = FarEnd { name: format!("{} ({})", about.name, about.version), ..FarEnd::default() };
    let mut note = |what, why: NoFigure| failed(NotMeasured { what, why });
    if request.trains {
        match in_time(trains_to(client, &about)).await {
            Ok(found) => (far.to_bits_per_s, far.to_at_least) = (Some(found.bits_per_s), found.at_least),
            Err(why) => note(Quantity::CapacityThere, why.into()),
        }
        match in_time(trains_from(client, &about)).await {
            Ok(found) => (far.from_bits_per_s, far.from_at_least) = (Some(found.bits_per_s), found.at_least),
            Err(why) => note(Quantity::CapacityBack, why.into()),
        }
    }
    if !request.bulk_to.is_zero() {
        match client.bulk_to(request.bulk_to, BULK_BYTES_MAX.min(about.limits.bulk_bytes_max)).await {
            Ok(came) => far.tcp_to_bits_per_s = came.bits_per_s,
            Err(why) => note(Quantity::TcpThere, why.into()),
        }
    }
    if !request.bulk_from.is_zero() {
        match client.bulk_from(request.bulk_from).await {
            Ok(rate) if rate.is_growing() => note(Quantity::TcpBack, NoFigure::Growing),
            Ok(rate) => far.tcp_from_bits_per_s = rate.bits_per_s(),
            Err(why) => note(Quantity::TcpBack, why.into()),
        }
    }
    Ok(far)
}

/// Limits the time that trains take.
async fn in_time<T>(trains: impl Future<Output = Result<T, TrainsError>>) -> Result<T, TrainsError> {
    timeout(TRAINS_TIME_MAX, trains).await.unwrap_or(Err(TrainsError::Late))
}

fn plan(about: &FarInfo) -> TrainPlan {
    TrainPlan::new(about.limits.packets_max as usize)
}

/// Measures the capacity there by trains that we send from an ordinary socket, stamped at the far end.
async fn trains_to(client: FarClient<'_>, about: &FarInfo) -> Result<Capacity, TrainsError> {
    let plan = plan(about);
    let pattern = plan.pattern();
    let here = our_address(client.address())?;
    for ip_bytes in IP_BYTES {
        let packets = u32::try_from(pattern.packets()).unwrap_or(u32::MAX);
        let waiting = client.receive(packets, SECONDS_MAX).await?;
        let mut there = client.address();
        there.set_port(waiting.port);
        let offsets = pattern.offsets();
        let sent = spawn_blocking(move || {
            let socket = train::socket(here, there)?;
            let due = due(Nanos::now() + Duration::from_millis(1), &offsets);
            train::send(&socket, &due, waiting.token, ip_bytes, || true)
        });
        match sent.await? {
            Ok(left) => {
                let arrivals = settled(left.len(), async || client.arrivals(waiting.token).await).await?;
                // The far end forgets it after a while anyway.
                let _ = client.forget(waiting.token).await;
                let came: Vec<_> = arrivals
                    .packets
                    .iter()
                    .map(|(seq, at, bytes)| ReceivedPacket { seq: *seq, at: Nanos(*at), ip_bytes: *bytes })
                    .collect();
                return Ok(dispersion::of_trains(&came, &left, &plan)?);
            }
            Err(error) if is_too_large(&error) => {
                let _ = client.forget(waiting.token).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(TrainsError::TooLarge)
}

/// Returns the arrivals of a train of `packets`, once no more come; `so_far` requests the arrivals so far.
async fn settled(packets: usize, so_far: impl AsyncFn() -> Result<Arrivals, FarError>) -> Result<Arrivals, FarError> {
    let mut before = so_far().await?;
    loop {
        if before.ended || before.packets.len() >= packets {
            return Ok(before);
        }
        sleep(STRAGGLERS).await;
        let now = so_far().await?;
        // Fewer arrivals than before contradict themselves: stop asking.
        if now.packets.len() <= before.packets.len() {
            return Ok(now);
        }
        before = now;
    }
}

/// Measures the capacity back by trains that the far end sends, stamped here.
async fn trains_from(client: FarClient<'_>, about: &FarInfo) -> Result<Capacity, TrainsError> {
    if !about.sends {
        return Err(TrainsError::SendsNone);
    }
    let plan = plan(about);
    let pattern = plan.pattern();
    let here = our_address(client.address())?;
    let mut why = TrainsError::TooLarge;
    for ip_bytes in IP_BYTES {
        let token = Token::random()?;
        let socket = TimestampingSocket::bind(here)?;
        let port = socket.port()?;
        let request = SendRequest::new(&pattern, ip_bytes, port, token);
        let (from, packets) = (client.address().ip(), pattern.packets());
        let (heard, mut hears) = mpsc::channel(packets);
        let mut listening = JoinSet::new();
        listening.spawn(listen(socket, token, from, heard));
        match client.send(&request).await {
            Ok(sent) => {
                let mut came = Vec::new();
                while came.len() < packets {
                    let Ok(Some(next)) = timeout(STRAGGLERS, hears.recv()).await else { break };
                    came.push(next);
                }
                let left: Vec<_> = sent.left_ns.into_iter().map(Nanos).collect();
                return Ok(dispersion::of_trains(&came, &left, &plan)?);
            }
            // Too large, most likely.
            Err(FarError::Refused { status: 409, error, .. }) => why = TrainsError::NotSent(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(why)
}

/// Forwards the packets of a train until the receiver is dropped.
async fn listen(mut socket: TimestampingSocket, token: Token, from: IpAddr, heard: mpsc::Sender<ReceivedPacket>) {
    while let Ok(came) = socket.next_of(token, from).await {
        if let Some(came) = came
            && heard.send(came).await.is_err()
        {
            return;
        }
    }
}

/// Returns this machine's address on the route to `there`.
fn our_address(there: SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr = if there.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(there)?;
    socket.local_addr()
}

/// Returns whether a packet was too large to be sent whole.
fn is_too_large(error: &io::Error) -> bool {
    crate::os::socket::is_too_large(error)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn far_end_that_contradicts_itself_is_polled_a_limited_number_of_times() {
        let asked = Cell::new(0);
        let so_far = async || {
            let asked = asked.replace(asked.get() + 1);
            Ok(Arrivals { packets: vec![(0, 0, 1500); 2 - asked % 2], ..Arrivals::default() })
        };
        let settled = timeout(STRAGGLERS * 10, settled(10, so_far)).await;
        assert!(settled.is_ok(), "asked {} times", asked.get());
    }
}
