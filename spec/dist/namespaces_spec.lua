--- namespaces: two ranks in two network namespaces, joined by a shaped link: they do not share memory, they share a network, and
-- its cable can be pulled.
local core = require "argand.core"
local dist = require "argand.dist"
local hosts_of = require "support.hosts"
local job = require "support.job"

local worker = arg[0]:match "^(.*)/[^/]*$" .. "/dist_worker.lua"
local EXPIRY_S, GRACE_S = 2, 2

local folder = assert(core.process.temporary_folder())
local hosts, refusal, is_shaped, key
if not dist.is_available() then
  refusal = "built without ZeroMQ"
else
  hosts, refusal = hosts_of.make()
end
if hosts then
  is_shaped = hosts:shape "400mbit"
  key = folder .. "/key"
  if not hosts_of.shell(("'%s' keygen '%s'"):format(core.process.self().program, key)) then
    refusal = "ZeroMQ was built without CURVE"
  end
end

-- Rank 0 on the first host, rank 1 on the second.
local function start(args, opts)
  opts = opts or {}
  opts.size, opts.script, opts.transport, opts.coordinator = 2, worker, "auto", hosts:coordinator()
  opts.args = {"expiry=" .. (opts.expiry or EXPIRY_S), "init_timeout=5", "timeout=30"}
  for _, word in ipairs(args) do opts.args[#opts.args + 1] = word end
  opts.each = function(rank)
    return {wrapper = hosts:wrapper(rank + 1),
            env = {ARGAND_KEY_FILE = opts.key, ARGAND_LOCAL_RANK = 0, ARGAND_LOCAL_WORLD_SIZE = 1}}
  end
  return job.start(opts)
end

local function both(ranks, name)
  return function()
    for i = 0, 1 do
      if not ranks[i]:first(name) and not ranks[i]:has_exited() then return false end
    end
    return true
  end
end

describe("two ranks in two network namespaces", function()
  local function spec(name, fn)
    it(name, function()
      if refusal then return pending(refusal) end
      job.alone(fn)
    end)
  end

  spec("meet, go over the network, and compute what they should", function()
    local ranks = start({"phase=all_reduce", "count=262144", "seconds=2"}, {key = key})
    local problems = job.finish(ranks, 20)
    assert.equal("", table.concat(problems, "\n"))
    for i = 0, 1 do
      local ready, finished = ranks[i]:first "ready", ranks[i]:first "finished"
      assert(ready and finished, ranks[i]:text())
      assert.equal("tcp", ready.transport) -- memory could be shared, but the ranks cannot know
      assert.equal("true", ready.encrypted)
      assert(tonumber(finished.num_right) >= 2, ranks[i]:text())
    end
    print(("  %s calls of 1 MiB in 2 s, link %s"):format(ranks[0]:first("finished").num_right,
      is_shaped and "shaped to 400 Mbit/s" or "not shaped: no tc"))
  end)

  spec("do not, without a key", function()
    local ranks = start({"phase=between", "seconds=1"})
    local problems = job.finish(ranks, 20)
    assert.equal("", table.concat(problems, "\n"))
    for i = 0, 1 do
      local err = ranks[i]:first "error"
      assert(err and err.code == "value" and err.message:find("argand keygen", 1, true), ranks[i]:text())
    end
  end)

  spec("bear a cable that is out for a second", function()
    local ranks = start({"phase=all_reduce", "count=262144", "seconds=3"}, {key = key, expiry = 6})
    assert(job.wait(both(ranks, "phase"), 15))
    job.sleep(0.2)
    hosts:plug(false)
    job.sleep(1)
    hosts:plug(true)
    local problems = job.finish(ranks, 30)
    assert.equal("", table.concat(problems, "\n"))
    for i = 0, 1 do assert(ranks[i]:first "finished", ranks[i]:text()) end
  end)

  for _, phase in ipairs {"all_reduce", "between"} do
    spec("name each other when the cable is pulled, " .. phase, function()
      local ranks = start({"phase=" .. phase, "count=262144", "seconds=30"}, {key = key})
      assert(job.wait(both(ranks, "phase"), 15))
      job.sleep(0.3)
      local pulled = core.now()
      hosts:plug(false)
      job.wait(both(ranks, "error"), 15)
      hosts:plug(true)
      local problems = job.finish(ranks, 20)
      assert.equal("", table.concat(problems, "\n"))
      for i = 0, 1 do
        local err = ranks[i]:first "error"
        assert(err, ranks[i]:text())
        assert(err.code == "peer" and err.culprits == tostring(1 - i), ranks[i]:text())
        assert(err.is_intact == "true", ranks[i]:text())
        local took = (tonumber(err.noticed_at) or err.at) - pulled
        assert(took < EXPIRY_S + GRACE_S, ("after %.2f s: %s"):format(took, ranks[i]:text()))
        print(("  cable pulled, %s: rank %d knows after %.2f s"):format(phase, i, took))
      end
    end)
  end

  it("leave nothing behind", function()
    if hosts then hosts:free() end
    local left = job.leftovers()
    job.remove_folder()
    os.execute(("rm -rf '%s'"):format(folder))
    assert.equal("", table.concat(left, "\n"))
  end)
end)
