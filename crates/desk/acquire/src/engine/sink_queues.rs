//! A task and a queue for each sink. When one queue is full, reading waits.

use std::sync::Arc;

use cheetah_error::{Error, Result};
use futures::future::{join_all, try_join_all};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::reader::Chunk;
use crate::sink::{Mark, Sink};

/// The most chunks queued for a sink: 16 MiB, shared between the sinks.
const QUEUE_MAX: usize = 16;

/// The tasks of all sinks.
pub struct SinkQueues {
    queues: Vec<SinkQueue>,
}

struct SinkQueue {
    commands: mpsc::Sender<SinkCommand>,
    task: JoinHandle<Result<Box<dyn Sink>>>,
}

enum SinkCommand {
    Push(Arc<Chunk>),
    Checkpoint(oneshot::Sender<Result<Mark>>),
}

impl SinkQueues {
    /// Starts a task for each sink.
    pub fn start(sinks: Vec<Box<dyn Sink>>) -> Self {
        let start = |sink| {
            let (commands, queue) = mpsc::channel(QUEUE_MAX);
            SinkQueue { commands, task: tokio::spawn(work(sink, queue)) }
        };
        Self { queues: sinks.into_iter().map(start).collect() }
    }

    /// Queues a chunk for every sink; waits while a queue is full. Fails with the error of the first sink that failed.
    pub async fn push(&mut self, chunk: &Arc<Chunk>) -> Result<()> {
        self.send_all(|| SinkCommand::Push(chunk.clone())).await
    }

    /// Asks every sink for a checkpoint after the chunks pushed so far. The future resolves when all of them are
    /// durable.
    pub async fn checkpoint(&mut self) -> Result<impl Future<Output = Result<Vec<Mark>>> + Send + 'static + use<>> {
        let mut answers = Vec::new();
        self.send_all(|| {
            let (answer, asked) = oneshot::channel();
            answers.push(asked);
            SinkCommand::Checkpoint(answer)
        })
        .await?;
        let answered = |answer: oneshot::Receiver<Result<Mark>>| async move {
            answer.await.unwrap_or_else(|_| Err(Error::failed("a destination was given up")))
        };
        Ok(async move { try_join_all(answers.into_iter().map(answered)).await })
    }

    async fn send_all(&mut self, mut command: impl FnMut() -> SinkCommand) -> Result<()> {
        for index in 0..self.queues.len() {
            if self.queues[index].commands.send(command()).await.is_err() {
                return Err(self.error_of(index).await);
            }
        }
        Ok(())
    }

    /// Returns why a sink's task ended early.
    async fn error_of(&mut self, index: usize) -> Error {
        let queue = self.queues.swap_remove(index);
        match queue.task.await {
            Ok(Err(error)) => error,
            Ok(Ok(_)) => Error::failed("a destination was given up"),
            Err(error) => Error::failed(format!("writing: {error}")),
        }
    }

    /// Waits until the sinks have taken all queued chunks, and returns them, in order.
    pub async fn stop(self) -> Result<Vec<Box<dyn Sink>>> {
        let (commands, tasks): (Vec<_>, Vec<_>) =
            self.queues.into_iter().map(|queue| (queue.commands, queue.task)).unzip();
        drop(commands);
        let stopped = join_all(tasks).await;
        let sink = |stopped: std::result::Result<_, tokio::task::JoinError>| {
            stopped.unwrap_or_else(|error| Err(Error::failed(format!("writing: {error}"))))
        };
        stopped.into_iter().map(sink).collect()
    }
}

async fn work(mut sink: Box<dyn Sink>, mut queue: mpsc::Receiver<SinkCommand>) -> Result<Box<dyn Sink>> {
    while let Some(command) = queue.recv().await {
        match command {
            SinkCommand::Push(chunk) => sink.push(&chunk).await?,
            SinkCommand::Checkpoint(answer) => match sink.checkpoint().await {
                // The receiver may be gone.
                Ok(durable) => drop(tokio::spawn(async move { answer.send(durable.await) })),
                Err(error) => {
                    let _ = answer.send(Err(error.clone()));
                    return Err(error);
                }
            },
        }
    }
    Ok(sink)
}
