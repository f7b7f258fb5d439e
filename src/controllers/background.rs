//! Background work beside the passes that takes longer than a request (IO).

use tokio::sync::mpsc;

/// Runs one task at a time, and keeps its result for the next pass.
pub(super) struct Background<T> {
    results: mpsc::UnboundedSender<T>,
    answers: mpsc::UnboundedReceiver<T>,
    pub(super) is_running: bool,
    pub(super) answer: Option<T>,
}

impl<T> Default for Background<T> {
    fn default() -> Self {
        let (results, answers) = mpsc::unbounded_channel();
        Self { results, answers, is_running: false, answer: None }
    }
}

impl<T: Send + 'static> Background<T> {
    /// Waits for the result of the task.
    pub(super) async fn answered(&mut self) {
        // The channel is never closed, because this object has a sender, too.
        if let Some(answer) = self.answers.recv().await {
            (self.is_running, self.answer) = (false, Some(answer));
        }
    }

    pub(super) fn start(&mut self, task: impl Future<Output = T> + Send + 'static) {
        self.is_running = true;
        let results = self.results.clone();
        tokio::spawn(async move {
            // The receiver is gone if the process stops.
            drop(results.send(task.await));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_waits_for_the_next_pass() {
        let mut background = Background::default();
        background.start(std::future::ready(1));
        assert!(background.is_running && background.answer.is_none());
        background.answered().await;
        assert!(!background.is_running);
        assert_eq!(background.answer.take(), Some(1));
    }
}
