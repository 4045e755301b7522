--- namespaces: two ranks in two network namespaces, joined by a shaped link: they do not share memory, they share a network, and
-- its cable can be pulled.
local core = require "argand.core"
local dist = require "argand.dist"
local job = require "support.job"
local process = core.process

local worker = arg[0]:match "^(.*)/[^/]*$" .. "/dist_worker.lua"
local command = process.self().program

local HOSTS = {[0] = "10.77.0.1", "10.77.0.2"}
local EXPIRY_S, GRACE_S = 2, 2
local PORT = 23456 -- nobody else is in there

-- ---- the two namespaces ----

local holders = {} -- processes that keep a namespace alive

local function shell(text)
  local pipe = io.popen(text .. " 2>&1; echo \"code $?\"")
  local out = pipe:read "*a"
  pipe:close()
  return out:match "code (%d+)\n$" == "0", (out:gsub("code %d+\n$", ""))
end

local function inside(index, words)
  return ("nsenter -t %d -U -n --preserve-credentials %s"):format(holders[index].pid, words)
end

local function hold(argv)
  local child, err = process.spawn {argv = argv, env = process.environment(), stdin = "null", stdout = "pipe", stderr = "pipe"}
  if not child then return nil, err end
  local text, deadline = "", core.now() + 5
  while not text:find "here\n" and core.now() < deadline do
    process.poll({child.stdout, child.stderr}, nil, 0.1)
    local closed = false
    for _, fd in ipairs {child.stdout, child.stderr} do
      local bytes = process.read(fd)
      text = text .. (bytes or "")
      closed = closed or bytes == false
    end
    if closed then break end
  end
  process.close(child.stdout)
  process.close(child.stderr)
  if text:find "here\n" then return child end
  process.kill(child.pid, job.SIGKILL)
  return nil, text
end

-- nil, or why there can be no namespaces here.
local function make_namespaces()
  for _, program in ipairs {"unshare", "nsenter", "ip"} do
    if not shell("command -v " .. program) then return program .. " is not installed" end
  end
  local err
  holders[0], err = hold {"unshare", "-r", "-n", "sh", "-c", "echo here; exec sleep 300"}
  if not holders[0] then return "namespaces are refused: " .. err:gsub("\n", " ") end
  local argv = {}
  for word in inside(0, "unshare -n"):gmatch "%S+" do argv[#argv + 1] = word end
  for _, word in ipairs {"sh", "-c", "echo here; exec sleep 300"} do argv[#argv + 1] = word end
  holders[1], err = hold(argv)
  if not holders[1] then return "a second namespace is refused: " .. err:gsub("\n", " ") end
  local steps = {{0, ("ip link add cable0 type veth peer name cable1 netns %d"):format(holders[1].pid)}}
  for index = 0, 1 do
    steps[#steps + 1] = {index, ("ip addr add %s/24 dev cable%d"):format(HOSTS[index], index)}
    steps[#steps + 1] = {index, ("ip link set cable%d up"):format(index)}
    steps[#steps + 1] = {index, "ip link set lo up"}
  end
  for _, step in ipairs(steps) do
    local ok, out = shell(inside(step[1], step[2]))
    if not ok then return ("%s: %s"):format(step[2], (out:gsub("\n", " "))) end
  end
end

local refusal = dist.is_available() and make_namespaces() or nil
if not dist.is_available() then refusal = "built without ZeroMQ" end

local is_shaped = not refusal and shell(inside(0, "tc qdisc add dev cable0 root tbf rate 400mbit burst 256k latency 50ms"))
  and shell(inside(1, "tc qdisc add dev cable1 root tbf rate 400mbit burst 256k latency 50ms"))

local folder = assert(process.temporary_folder())
local key
if not refusal then
  local ok = shell(("'%s' keygen '%s/key'"):format(command, folder))
  if ok then key = folder .. "/key" else refusal = "ZeroMQ was built without CURVE" end
end

local function plug(is_in)
  local ok, out = shell(inside(0, "ip link set cable0 " .. (is_in and "up" or "down")))
  assert(ok, out)
end

local function start(args, opts)
  opts = opts or {}
  opts.size, opts.script, opts.coordinator = 2, worker, ("tcp://%s:%d"):format(HOSTS[0], PORT)
  opts.args = {"expiry=" .. (opts.expiry or EXPIRY_S), "init_timeout=5", "timeout=30"}
  for _, word in ipairs(args) do opts.args[#opts.args + 1] = word end
  opts.each = function(index)
    local wrapper = {}
    for word in inside(index, ""):gmatch "%S+" do wrapper[#wrapper + 1] = word end
    return {wrapper = wrapper, env = {ARGAND_KEY_FILE = opts.key, ARGAND_LOCAL_RANK = 0, ARGAND_LOCAL_WORLD_SIZE = 1}}
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
    local ranks = start({"phase=all_reduce", "count=262144", "seconds=2"}, {transport = "auto", key = key})
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
    local ranks = start({"phase=between", "seconds=1"}, {transport = "auto"})
    local problems = job.finish(ranks, 20)
    assert.equal("", table.concat(problems, "\n"))
    for i = 0, 1 do
      local err = ranks[i]:first "error"
      assert(err and err.code == "value" and err.message:find("argand keygen", 1, true), ranks[i]:text())
    end
  end)

  spec("bear a cable that is out for a second", function()
    local ranks = start({"phase=all_reduce", "count=262144", "seconds=3"}, {transport = "auto", key = key, expiry = 6})
    assert(job.wait(both(ranks, "phase"), 15))
    job.sleep(0.2)
    plug(false)
    job.sleep(1)
    plug(true)
    local problems = job.finish(ranks, 30)
    assert.equal("", table.concat(problems, "\n"))
    for i = 0, 1 do assert(ranks[i]:first "finished", ranks[i]:text()) end
  end)

  for _, phase in ipairs {"all_reduce", "between"} do
    spec("name each other when the cable is pulled, " .. phase, function()
      local ranks = start({"phase=" .. phase, "count=262144", "seconds=30"}, {transport = "auto", key = key})
      assert(job.wait(both(ranks, "phase"), 15))
      job.sleep(0.3)
      local pulled = core.now()
      plug(false)
      job.wait(both(ranks, "error"), 15)
      plug(true)
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
    for _, holder in pairs(holders) do process.kill(holder.pid, job.SIGKILL) end
    job.alone(function() job.sleep(0.1) end) -- reaps them
    local left = job.leftovers()
    job.remove_folder()
    os.execute(("rm -rf '%s'"):format(folder))
    assert.equal("", table.concat(left, "\n"))
  end)
end)
