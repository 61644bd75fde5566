//! Reads that go on while something else is worked at.

use std::pin::pin;

use futures::future::{Either, select};

/// Does `work`, and `other` as long as it takes.
pub(crate) async fn beside<T>(work: impl Future<Output = T>, other: impl Future) -> T {
    match select(pin!(work), pin!(other)).await {
        Either::Left((done, _)) => done,
        Either::Right((_, work)) => work.await,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn what_goes_on_beside_the_work_is_not_waited_for_and_does_not_end_it() {
        assert_eq!(beside(async { 1 }, pending::<()>()).await, 1);
        let later = async {
            tokio::task::yield_now().await;
            2
        };
        assert_eq!(beside(later, async { Err::<(), ()>(()) }).await, 2);
    }
}
