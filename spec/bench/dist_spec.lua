--- dist_spec: `argand bench dist` and `argand bench ddp` run to their end and all sums are right. Nothing timed is claimed.
local core = require "argand.core"
local dist_bench = require "argand.bench.dist"
local ddp_bench = require "argand.bench.ddp"
local launcher = require "support.launcher"
local process = core.process

local function is_finite(value)
  return type(value) == "number" and value == value and value < math.huge and value > 0
end

-- Runs fn with print silenced.
local function quietly(fn)
  local print_before = print
  _G.print = function() end
  local ok, result = pcall(fn)
  _G.print = print_before
  if not ok then error(result, 0) end
  return result
end

local function read_all(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  os.remove(path)
  return text
end

local is_available = core.dist and core.dist.is_available()
local it_with_jobs = is_available and it or function(name) pending(name .. ": built without ZeroMQ") end

describe("argand bench dist", function()
  it_with_jobs("measures each case beside who is there, with right sums, and writes them as JSON", function()
    local path = os.tmpname()
    local report = quietly(function() return dist_bench.main { "--quick", "--json", path } end)
    local num_gloo, transports, ways = 0, {}, {}
    for _, r in ipairs(report.results) do
      local name = ("%d ranks, %d B, %s, %s"):format(r.ranks, r.bytes, r.transport, r.way)
      assert.equal(0, r.wrong, name)
      assert.is_true(is_finite(r.p50) and is_finite(r.best) and r.num_iterations == 2, name)
      for _, peer in ipairs { r.gloo or {}, r.mpi or {} } do
        if peer.p50 then assert.equal(0, peer.wrong, name) end
      end
      if r.gloo then num_gloo = num_gloo + 1 end
      assert.is_nil(r.bar, name)
      transports[r.transport], ways[r.way] = true, true
    end
    assert.equal(29, #report.results)
    assert.same({ shm = true, ipc = true, tcp = true, curve = true }, transports)
    assert.same({ ordinary = true, resident = true, shared = true, in_place = true }, ways)
    local text = read_all(path)
    assert.is_truthy(text:find('"results": [{', 1, true))
    if num_gloo == 0 then pending "without Gloo: there is no torch in /usr/bin/python3" end
  end)

  it("refuses unknown options", function()
    assert.is_false(pcall(quietly, function() return dist_bench.main { "--fast" } end))
  end)
end)

describe("argand bench ddp", function()
  it_with_jobs("trains with one rank, with two, and with the optimizer shared out", function()
    local path = os.tmpname()
    local report = quietly(function() return ddp_bench.main { "--quick", "--json", path } end)
    assert.equal(5, #report.results)
    assert.equal(10032640, report.parameters)
    for _, r in ipairs(report.results) do assert.is_true(is_finite(r.step_p50) and is_finite(r.ratio), r.label) end
    assert.is_truthy(read_all(path):find('"2 ranks"', 1, true))
  end)
end)

describe("a bench of jobs", function()
  local SIGKILL, LIMIT_S = 9, 25

  it_with_jobs("leaves no files when it is killed", function()
    local place = launcher.new()
    local child = place:spawn {process.self().program, "bench", "dist", "--quick", "2 ranks 4 B"}
    child:expect "ordinary" -- its ranks have files now
    process.kill(child.pid, SIGKILL)
    assert.equal(-SIGKILL, child:finish())
    local deadline = core.now() + LIMIT_S
    while os.remove(place.folder .. "/tmp") == nil and core.now() < deadline do process.poll({}, nil, 0.01) end
    assert.is_nil(io.open(place.folder .. "/tmp"))
    assert.is_true(place:remove())
  end)

  it("refuses names that no case has, and files that it could not write, before it measures", function()
    local ok, err = pcall(quietly, function() return dist_bench.main { "2 rank 4 B" } end)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("no case has a name with 2 rank 4 B", 1, true), tostring(err))
    for _, bench in ipairs { dist_bench, ddp_bench } do
      ok, err = pcall(quietly, function() return bench.main { "--json", "/nosuch/file" } end)
      assert.is_false(ok)
      assert.equal("file", err.code)
    end
  end)
end)
