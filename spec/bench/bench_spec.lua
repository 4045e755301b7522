--- bench_spec: every case of `argand bench` runs, here and in the peer's list, and its numbers are finite.
local bench = require "argand.bench"
local bench_cases = require "argand.bench.cases"

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

describe("argand bench", function()
  it("times every case, with finite numbers, and writes them as JSON", function()
    local path = os.tmpname()
    local report = quietly(function() return bench.main { "--quick", "--no-torch", "--json", path } end)
    assert.equal(#bench_cases, #report.results)
    for _, rate in ipairs { "gflops", "cache_gbs", "memory_gbs" } do assert.is_true(is_finite(report.peak[rate]), rate) end
    for _, result in ipairs(report.results) do
      assert.is_true(is_finite(result.min) and result.median >= result.min, result.name)
    end
    local file = assert(io.open(path))
    local text = file:read("*a")
    file:close()
    os.remove(path)
    for _, case in ipairs(bench_cases) do assert.truthy(text:find(case.name, 1, true), case.name) end
  end)

  it("takes cases by parts of their names and refuses unknown options", function()
    local report = quietly(function() return bench.main { "--quick", "tanh", "softmax" } end)
    assert.equal(2, #report.results)
    assert.is_false(pcall(quietly, function() return bench.main { "--fast" } end))
  end)

  it("has each case in the peer's script", function()
    local root = debug.getinfo(1, "S").source:match("^@(.*)bench_spec%.lua$")
    local file = assert(io.open(root .. "torch_peer.py"))
    local text = file:read("*a")
    file:close()
    for _, case in ipairs(bench_cases) do
      if not case.name:find("^matmul") then assert.truthy(text:find('"' .. case.name .. '"', 1, true), case.name) end
    end
  end)
end)
