//! The MCP servers of a connection: their start before the first turn, and the report of each one that ends.

use agent_duplex::Event;

use super::Running;
use super::link::{Halt, Link};
use super::turn::Turn;
use crate::tool::{ListedTools, RunningServers, ToolBudget};

impl Running {
    /// Starts the servers, and adds their tools, before the first turn. An interrupt ends the start, and the next turn tries again.
    pub(super) async fn start_servers(&mut self, link: &mut Link) -> Result<(), Halt> {
        if self.servers.is_some() {
            return Ok(());
        }
        link.thawed().await?;
        let mut running = RunningServers::start(&self.options.mcp_servers, &self.context);
        let window = self.options.context_window;
        let budget = ToolBudget::beside(&self.tools.settings, window);
        let listed = link.during(running.listed(budget)).await;
        let ListedTools {
            tools,
            mut problems,
        } = match listed {
            Ok(listed) => listed,
            Err(halt) => {
                running.stop().await;
                return Err(halt);
            }
        };
        self.servers = Some(running);
        problems.extend(self.tools.add(tools));
        for problem in problems {
            link.report(Event::Warning(problem)).await;
        }
        Ok(())
    }
}

impl Turn<'_> {
    /// Reports the servers that have ended since the last report.
    pub(super) async fn report_ended_servers(&mut self) {
        let ended = self.servers.as_mut().map(RunningServers::take_ended);
        for why in ended.unwrap_or_default() {
            self.link.report(Event::Warning(why)).await;
        }
    }
}
