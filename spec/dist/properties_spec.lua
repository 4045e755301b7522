--- properties: every collective between real processes: ranks, transports, dtypes, counts, layouts. The worker has the cases.
local cases = require "support.cases"
local dist = require "argand.dist"
local job = require "support.job"

local worker = arg[0]:match "^(.*)/[^/]*$" .. "/dist_worker_properties.lua"

describe("collectives between processes", function()
  it("give what they should", function()
    if not dist.is_available() then return pending "built without ZeroMQ" end
    local check, tasks = cases.begin(), {}
    for n = 4, 1, -1 do
      for _, transport in ipairs {"shm", "ipc", "tcp"} do
        if n > 1 or transport == "shm" then
          local name = ("%d ranks over %s"):format(n, transport)
          tasks[#tasks + 1] = {name = name, n = n, transport = transport, weight = n, run = function(task)
            task.ranks = job.start {size = n, script = worker, transport = transport}
            task.problems = job.finish(task.ranks, 120)
          end}
        end
      end
    end
    job.together(tasks, 8)
    for _, task in ipairs(tasks) do
      check(task.name, function()
        if task.error then error(task.error, 0) end
        assert.equal("", table.concat(task.problems, "\n"))
        for _, rank in pairs(task.ranks) do
          local done, ready = rank:first "done", rank:first "ready"
          assert(done and rank.code == 0, rank:text())
          assert.equal(task.n == 1 and "none" or task.transport, ready.transport)
          assert(tonumber(done.passed) > 300, rank:text())
          cases.passed = cases.passed + tonumber(done.passed)
          assert(done.failed == "0", rank:text())
        end
      end)
      local done = task.ranks and task.ranks[0]:first "done"
      if done then print(("  %s: %s cases on each rank, %.1f s"):format(task.name, done.passed, done.seconds)) end
    end
    check.done()
  end)

  it("leave nothing behind", function()
    local left = job.leftovers()
    job.remove_folder()
    assert.equal("", table.concat(left, "\n"))
  end)
end)
