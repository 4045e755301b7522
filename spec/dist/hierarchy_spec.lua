--- hierarchy: several ranks on each of two hosts, which are network namespaces: memory within a host, the network between them.
local cases = require "support.cases"
local core = require "argand.core"
local dist = require "argand.dist"
local job = require "support.job"
local hosts_of = require "support.hosts"

local folder = assert(core.process.temporary_folder())
local workers = arg[0]:match "^(.*)/[^/]*$"
local EXPIRY_S, GRACE_S, LONG_S = 2, 2, 30

-- ---- where ranks are: "112" has ranks 0 and 1 on the first host ----

local hosts, refusal, key
if not dist.is_available() then
  refusal = "built without ZeroMQ"
else
  hosts, refusal = hosts_of.make()
end
if hosts then
  key = folder .. "/key"
  if not hosts_of.shell(("'%s' keygen '%s'"):format(core.process.self().program, key)) then
    refusal = "ZeroMQ was built without CURVE"
  end
end

-- words[rank]: a command that starts the rank.
local function start(placement, worker, args, words)
  return job.start {size = #placement, script = workers .. "/" .. worker, args = args, transport = "auto",
    coordinator = hosts:coordinator(),
    each = function(rank)
      local wrapper = hosts:wrapper(tonumber(placement:sub(rank + 1, rank + 1)))
      for _, word in ipairs(words and words[rank] or {}) do wrapper[#wrapper + 1] = word end
      return {wrapper = wrapper, env = {ARGAND_KEY_FILE = key}}
    end}
end

local function joined(ranks, problems, transport)
  assert.equal("", table.concat(problems, "\n"))
  for _, rank in pairs(ranks) do
    local ready = rank:first "ready"
    assert(ready, "did not join: " .. rank:text())
    assert.equal(transport or "shm+tcp", ready.transport)
  end
  return ranks
end

-- Runs the worker for all ranks to their end.
local function run(placement, worker, args)
  local ranks, problems
  job.alone(function()
    ranks = start(placement, worker, args)
    problems = job.finish(ranks, 60)
  end)
  return joined(ranks, problems)
end

-- The same once for each of the rows, some at once: rows of {name, args}; judge(row, ranks).
local function run_each(placement, worker, rows, judge)
  local check, tasks = cases.begin(), {}
  for _, row in ipairs(rows) do
    tasks[#tasks + 1] = {row = row, run = function(task)
      task.ranks = start(placement, worker, row.args)
      task.problems = job.finish(task.ranks, 60)
    end}
  end
  job.together(tasks, 4)
  for _, task in ipairs(tasks) do
    check(task.row.name, function()
      if task.error then error(task.error, 0) end
      judge(task.row, joined(task.ranks, task.problems))
    end)
  end
  check.done()
end

local function text_of(err) return (err.message:gsub("^[^%s]+:%d+: ", ""):gsub("^[%w_]+: ", "")) end

-- What the ranks are told of rank 1's other call; the names are those of dist_worker_misuse.
local OTHERS = {
  {name = "op", "rank 1 called all_reduce%(max%)"},
  {name = "shape", "rank 1 called all_reduce%(sum%) of f32%[2, 3%]"},
  {name = "big_count", "rank 1 called all_reduce%(sum%) of f32%[1048577%]"},
  {name = "root", "rank 1 called broadcast of f32%[6%], root 1", is_told_later = true},
  {name = "kind", "rank 1 called all_gather of f32%[6%]"},
  {name = "algorithm", "%(with different algorithms%)"},
  {name = "order", "rank 1 called broadcast of f32%[6%]"},
  {name = "skipped", "rank 1 called barrier"},
  {name = "out_shape", "rank 1 refused all_reduce.*: out: expected f32%[6%], got f32%[5%]", own = "shape"},
  {name = "reference", "rank 1 refused all_reduce.*device reference, which cannot", own = "device"},
}

for _, case in ipairs(OTHERS) do case.args = {case.name} end

local function check_other(case, ranks)
  local first
  for i, rank in pairs(ranks) do
    local err = rank:first "error"
    -- Who has the root's data is through: the next call tells it.
    if not err and case.is_told_later and rank:first "passed" then err = rank:first "ended" end
    assert(err, "no error: " .. rank:text())
    if case.own and i == 1 then
      assert(err.code == case.own, rank:text())
    else
      first = first or text_of(err)
      assert(err.code == "mismatch" and err.message:find(case[1]), rank:text())
      assert(text_of(err) == first, ("'%s' and '%s'"):format(first, rank:text()))
      assert(err.culprits:find(case.own and "^1$" or "1"), rank:text())
    end
    local ended = rank:first "ended"
    assert(ended and ended.code == "mismatch", "the group goes on: " .. rank:text())
  end
end

describe("several ranks on each of two hosts", function()
  local function spec(name, fn)
    it(name, function()
      if refusal then return pending(refusal) end
      fn()
    end)
  end

  for _, placement in ipairs {"1122", "122", "1112", "1221"} do
    spec("give what they should, " .. placement, function()
      for i, rank in pairs(run(placement, "dist_worker_properties.lua")) do
        local done = rank:first "done"
        assert(done and rank.code == 0 and tonumber(done.passed) > 300, rank:text())
        assert(done.failed == "0", rank:text())
        if i == 0 then print(("  %s: %s cases on each rank, %.1f s"):format(placement, done.passed, done.seconds)) end
      end
    end)
  end

  for _, placement in ipairs {"1122", "1212"} do
    spec("make groups, each with the transport that it needs, " .. placement, function()
      for _, rank in pairs(run(placement, "dist_worker_hierarchy.lua", {"groups", placement})) do
        local done = rank:first "done"
        assert(done and done.wrong == "" and done.num_right == "73", rank:text())
      end
    end)
  end

  -- No file of this process may have a size, the memory to be shared neither.
  spec("go over the network alone when memory cannot be shared on one of the hosts", function()
    local words = {[2] = {"sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"}}
    local ranks, problems
    job.alone(function()
      ranks = start("1122", "dist_worker_hierarchy.lua", {"train", "1122"}, words)
      problems = job.finish(ranks, 60)
    end)
    for _, rank in pairs(joined(ranks, problems, "tcp")) do
      local done = rank:first "done"
      assert(done and done.wrong == "" and done.num_right == "4", rank:text())
    end
  end)

  spec("average gradients", function()
    for _, rank in pairs(run("1122", "dist_worker_hierarchy.lua", {"train", "1122"})) do
      local done = rank:first "done"
      assert(done and done.wrong == "" and done.num_right == "4", rank:text())
    end
  end)

  -- The ranks of a host divide the parameters; one that is alone updates all.
  spec("have parameters in common on each host", function()
    local owners = {["11222"] = {[0] = "0,0,1,1", "0,0,1,1", "2,3,3,4", "2,3,3,4", "2,3,3,4"},
                    ["121"] = {[0] = "0,0,2,2", "1,1,1,1", "0,0,2,2"}}
    for placement, expected in pairs(owners) do
      for index, rank in pairs(run(placement, "dist_worker_hierarchy.lua", {"train_in_common", placement})) do
        local done = rank:first "done"
        assert(done and done.wrong == "" and done.num_right == "12", rank:text())
        assert.equal(expected[index], rank:first("owners").owners)
      end
    end
  end)

  -- Rank 1 is the other one on the leader's host, a leader, and alone on its host.
  for _, placement in ipairs {"112", "122", "121"} do
    spec("tell all ranks of another call on one of them in the same words, " .. placement, function()
      run_each(placement, "dist_worker_misuse.lua", OTHERS, check_other)
    end)
  end

  -- A leader, one who is not, and one who is alone.
  for _, row in ipairs {{"1122", 2}, {"1122", 3}, {"1112", 1}, {"1112", 3}} do
    local placement, victim = row[1], row[2]
    spec(("name rank %d when it is killed, %s"):format(victim, placement), function()
      local ranks, problems, killed
      local function all_have(name)
        return function()
          for i = 0, #placement - 1 do
            if not ranks[i]:first(name) and not ranks[i]:has_exited() then return false end
          end
          return true
        end
      end
      job.alone(function()
        ranks = start(placement, "dist_worker.lua",
          {"phase=all_reduce", "count=1048576", "seconds=" .. LONG_S, "expiry=" .. EXPIRY_S, "timeout=" .. LONG_S})
        assert(job.wait(all_have "phase", 20), ranks[0]:text())
        job.sleep(0.2)
        killed = core.now()
        ranks[victim]:kill(job.SIGKILL)
        job.wait(all_have "error", 15)
        problems = job.finish(ranks, 20)
      end)
      assert.equal("", table.concat(problems, "\n"))
      for i = 0, #placement - 1 do
        local err = ranks[i]:first "error"
        if i ~= victim then
          assert(err and err.code == "peer" and err.culprits == tostring(victim), ranks[i]:text())
          assert(err.is_intact == "true" and err.has_ended == "true", ranks[i]:text())
          assert(err.at - killed < EXPIRY_S + GRACE_S, ("after %.2f s: %s"):format(err.at - killed, ranks[i]:text()))
        end
      end
    end)
  end

  -- On its host it is seen, by the others it is heard of.
  spec("name a rank that does not come", function()
    local rows = {}
    for absent = 0, 3 do
      rows[#rows + 1] = {name = "rank " .. absent, args = {"absent_rank", "1122", absent}, absent = absent}
    end
    run_each("1122", "dist_worker_hierarchy.lua", rows, function(row, ranks)
      for i = 0, 3 do
        local err = ranks[i]:first "error"
        local is_named = err and err.code == "timeout" and err.culprits == tostring(row.absent)
        assert(i == row.absent or is_named, ranks[i]:text())
      end
    end)
  end)

  it("leave nothing behind", function()
    if hosts then hosts:free() end
    assert.equal("", table.concat(job.leftovers(), "\n"))
    job.remove_folder()
    os.execute(("rm -rf '%s'"):format(folder))
  end)
end)
