--- bind: `argand run --bind`: which processors each rank gets, here and on other hosts, and what is said when they are too few.
local core = require "argand.core"
local cases = require "support.cases"
local plan = require "argand.run.plan"
local launcher = require("support.launcher").new()
local preload = require "support.preload"
local process = core.process

-- Runs `argand run` without a word of threads in its environment but those of `variables`. processors: that it may use.
local function run(args, variables, processors)
  local env = {}
  for _, entry in ipairs(process.environment()) do
    local name = entry:match "^[^=]*"
    if name == "ARGAND_THREADS" or name:find "_NUM_THREADS$" then env[name] = false end
  end
  for name, value in pairs(variables or {}) do env[name] = value end
  return launcher:run(args, {env = env, processors = processors})
end

local function assert_contains(text, part) assert(text:find(part, 1, true), ("%q is not in: %s"):format(part, text)) end

local function count(text, part) return select(2, text:gsub(part, "")) end

local own = process.processors()
local few = {own[1], own[2]}
local keyfile = launcher:write_file("key", "public 1\nsecret 2\n")
-- With an argument N it fails until the launcher has started it again N times.
local shows = launcher:write_file("mask.lua", [[
  local core, rank = require "argand.core", tonumber(os.getenv "ARGAND_RANK")
  local text = io.open("/proc/self/status"):read "*a"
  print("mask " .. text:match "Cpus_allowed_list:%s*(%S+)" .. " threads " .. os.getenv "ARGAND_THREADS" .. " " .. os.getenv "OMP_NUM_THREADS")
  io.stdout:flush()
  if arg[1] and tonumber(os.getenv "ARGAND_RESTART") < tonumber(arg[1]) then core.sleep(rank == 0 and 0.1 or 30) os.exit(6) end
]])

-- What `shows` has said: the processors of each rank as a list, and its threads.
local function masks_of(out)
  local masks, threads = {}, {}
  for line in out:gmatch "[^\n]+" do
    local rank, text, own_threads, omp_threads = line:match "^%[?(%d*)%]? ?mask (%S+) threads (%d+) (%d+)$"
    assert(rank, line)
    assert.equal(own_threads, omp_threads)
    local mask = {}
    for first, last in text:gmatch "(%d+)%-?(%d*)" do
      for number = tonumber(first), tonumber(last) or tonumber(first) do mask[#mask + 1] = number end
    end
    rank = tonumber(rank) or 0
    masks[rank + 1], threads[rank + 1] = mask, tonumber(own_threads)
  end
  return masks, threads
end

-- One after the other the shares are all the processors, and they differ by one at most.
local function assert_divided(shares, processors, size)
  assert.equal(size, #shares)
  local all = {}
  for i, share in ipairs(shares) do
    assert(#share >= 1 and #share <= #shares[1] and #share >= #shares[1] - 1, ("share %d has %d"):format(i, #share))
    assert(i == 1 or #share <= #shares[i - 1], "a larger share comes late")
    for _, number in ipairs(share) do all[#all + 1] = number end
  end
  assert.same(processors, all)
end

describe("processors", function()
  it("are divided into contiguous shares", function()
    local check = cases.begin()
    for _, case in ipairs {{1, 1}, {2, 1}, {2, 2}, {7, 3}, {8, 3}, {64, 7}, {5000, 3}, {5000, 4999}} do
      check(("%d by %d"):format(case[1], case[2]), function()
        local processors = {}
        for i = 1, case[1] do processors[i] = 3 * i end -- numbers may have gaps
        local ranks = {}
        for i = 1, case[2] do ranks[i] = {} end
        local whole = plan.shares({bind = {before = 0, size = case[2]}, ranks = ranks}, processors)
        assert_divided(whole, processors, case[2])
        -- two nodes on one host
        local halves = {}
        for _, range in ipairs {{0, math.floor(case[2] / 2)}, {math.floor(case[2] / 2), case[2]}} do
          local some = {}
          for i = 1, range[2] - range[1] do some[i] = {} end
          for _, share in ipairs(plan.shares({bind = {before = range[1], size = case[2]}, ranks = some}, processors)) do
            halves[#halves + 1] = share
          end
        end
        assert.same(whole, halves)
        assert.is_nil(plan.shares({ranks = ranks}, processors))
        assert.is_nil(plan.shares({bind = {before = 0, size = case[1] + 1}, ranks = ranks}, processors))
      end)
    end
    check.done()
  end)

  it("are each rank's own with --bind, and so are its threads", function()
    local check = cases.begin()
    for size = 1, math.min(#own, 4) do
      check(("%d of %d"):format(size, #own), function()
        local code, out, err = run({"-n", tostring(size), "--bind", shows})
        assert.same({0, ""}, {code, err})
        local masks, threads = masks_of(out)
        local node = {bind = {before = 0, size = size}, ranks = {}}
        for rank = 1, size do node.ranks[rank] = {} end
        assert.same(plan.shares(node, own, plan.core_of(own)), masks)
        for rank, mask in ipairs(masks) do assert.equal(#mask, threads[rank]) end
      end)
    end
    check("of those that the launcher has", function()
      local code, out, err = run({"-n", "1", "--bind", shows}, nil, {own[#own]})
      assert.same({0, ""}, {code, err})
      assert.same({{own[#own]}}, (masks_of(out)))
    end)
    check("threads of a larger share", function()
      local node = {ranks = {{}, {}}}
      assert.equal("5", plan.thread_variables(node, {1, 2, 3, 4, 5}, {}).ARGAND_THREADS)
      assert.equal("5", plan.thread_variables(node, {1, 2, 3, 4, 5}, {}).OMP_NUM_THREADS)
    end)
    check("of thousands", function()
      local variables = preload.variables("many_processors", launcher.folder)
      local code, out, err = run({"-n", "3", "--bind", launcher:write_file("empty.lua", "")}, variables)
      assert.same({0, ""}, {code, err})
      local lines = {}
      for line in out:gmatch "[^\n]+" do lines[#lines + 1] = line end
      table.sort(lines)
      assert.same({"[0] bound to 7", "[1] bound to 1500", "[2] bound to 8191"}, lines)
    end)
    check("threads as told", function()
      local code, out = run({"-n", "1", "--bind", "--threads", "3", shows})
      assert.equal(0, code)
      assert.same({3}, (select(2, masks_of(out))))
    end)
    check.done()
  end)

  it("are everybody's without", function()
    local code, out, err = run({"-n", "2", shows})
    assert.same({0, ""}, {code, err})
    assert.same({own, own}, (masks_of(out)))
  end)

  it("are everybody's when they are too few, which is said once", function()
    local code, out, err = run({"-n", "2", "--bind", shows}, nil, {own[1]})
    assert.equal(0, code)
    assert.equal("argand run: --bind: 2 ranks are too many for the 1 processor of host localhost; they are not bound\n", err)
    local masks, threads = masks_of(out)
    assert.same({{own[1]}, {own[1]}}, masks)
    assert.same({1, 1}, threads)
    local size = #few + 1
    code, out, err = run({"-n", tostring(size), "--bind", "--max-restarts", "1", "--grace", "0.2", shows, "1"}, nil, few)
    assert.equal(0, code, err)
    assert_contains(err, "argand run: restart 1 of 1")
    assert.equal(1, count(err, "not bound"), err)
    assert.same(few, masks_of(out)[size])
  end)

  it("are divided by all names of this host", function()
    local own_host = process.self().host
    local code, out, err = run({"--hosts", "localhost," .. own_host, "--key", keyfile, "--bind", shows})
    assert.equal(0, code, err)
    local masks = masks_of(out)
    if #own >= 2 then assert_divided(masks, own, 2) else assert.same({own, own}, masks) end
    assert.equal(#own >= 2 and 0 or 2, count(err, "not bound"))
  end)

  it("are shown by --dry-run", function()
    local code, out, err = run({"-n", tostring(#own), "--bind", "--dry-run", shows})
    assert.same({0, ""}, {code, err})
    assert_contains(out, ("# rank %d on localhost, processors %d\n"):format(#own - 1, own[#own]))
    assert_contains(out, " OMP_NUM_THREADS=1 ")
  end)

  it("are divided by each host for itself", function()
    -- The agent of host b has one processor only.
    local ssh = launcher:write_program("ssh_of_processors", ([[
#!/bin/sh
if [ "$1" = b ]; then exec taskset -c %d sh -c "$2"; fi
exec sh -c "$2"
]]):format(own[1]))
    local hosts = ("a:%d,b:2"):format(#few)
    local args = {"--hosts", hosts, "--ssh", ssh, "--key", keyfile, "--bind", "--max-restarts", "1", "--grace", "0.2", shows, "1"}
    local code, out, err = run(args, nil, few)
    assert.equal(0, code, err)
    assert_contains(err, "argand run: restart 1 of 1")
    assert_contains(err, "argand run: --bind: 2 ranks are too many for the 1 processor of host b; they are not bound\n")
    assert.equal(1, count(err, "not bound"), err)
    local masks = masks_of(out)
    assert.equal(#few + 2, #masks)
    for i, number in ipairs(few) do assert.same({number}, masks[i]) end
    for i = #few + 1, #few + 2 do assert.same({own[1]}, masks[i]) end
  end)
end)

describe("at the end", function()
  it("nothing is left", function()
    assert.is_true(launcher:remove())
  end)
end)
