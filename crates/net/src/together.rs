//! Questions of several connections of a worker, answered by one job.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::jobs::{Blocking, run_blocking};

/// What gets the answer to a question, on the worker; `None` if the job was lost.
type Done<A> = Box<dyn FnOnce(Option<A>)>;

/// Answers questions in their order. Blocking.
type Answer<Q, A> = dyn Fn(Vec<Q>) -> Vec<A> + Send + Sync;

/// Collects the questions that arrive while a worker handles what it has received, and has them
/// answered together on a blocking thread.
///
/// For questions whose round trip costs more than their answer. A question never waits for one that
/// was asked in an earlier turn of the worker.
pub struct Together<Q, A> {
    blocking: Rc<dyn Blocking>,
    answer: Arc<Answer<Q, A>>,
    /// The most questions that one job answers.
    most: usize,
    waiting: RefCell<Vec<(Q, Done<A>)>>,
}

impl<Q: Send + 'static, A: Send + 'static> Together<Q, A> {
    /// `answer` answers up to `most` questions, in their order.
    pub fn new(
        blocking: Rc<dyn Blocking>,
        most: usize,
        answer: impl Fn(Vec<Q>) -> Vec<A> + Send + Sync + 'static,
    ) -> Together<Q, A> {
        let (answer, waiting) = (Arc::new(answer) as Arc<Answer<Q, A>>, RefCell::default());
        Together { blocking, answer, most: most.max(1), waiting }
    }

    /// Asks; `done` gets the answer on this worker.
    pub(crate) async fn ask(&self, question: Q, done: Done<A>) {
        let is_first = {
            let mut waiting = self.waiting.borrow_mut();
            waiting.push((question, done));
            waiting.len() == 1
        };
        if !is_first {
            return;
        }
        // What else is ready on this worker now may ask too.
        tokio::task::yield_now().await;
        let mut waiting = self.waiting.take();
        while waiting.len() > self.most {
            let rest = waiting.split_off(self.most);
            tokio::task::spawn_local(self.answered(std::mem::replace(&mut waiting, rest)));
        }
        self.answered(waiting).await;
    }

    fn answered(&self, asked: Vec<(Q, Done<A>)>) -> impl Future<Output = ()> + use<Q, A> {
        let (questions, dones): (Vec<Q>, Vec<Done<A>>) = asked.into_iter().unzip();
        let answer = Arc::clone(&self.answer);
        let answers = run_blocking(&*self.blocking, move || answer(questions));
        async move {
            let mut answers = answers.await.unwrap_or_default().into_iter();
            dones.into_iter().for_each(|done| done(answers.next()));
        }
    }
}
