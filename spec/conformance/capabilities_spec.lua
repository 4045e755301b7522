-- The capability table against behaviour: where it says an op runs, the sample's calls work; where it says no, they raise
-- an error of the right kind that names the op.
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local cases = require "support.cases"
local samples = require "support.samples"

local refusals = {kind = true, unsupported = true, dtype = true}
local totals = {native = 0, composed = 0, none = 0}

local function check_support(op, sample, dtype, device)
  local word, reason = ag.supports {op = op, dtype = dtype, device = device}
  local ok, err = pcall(function()
    local options = {dtype = dtype, device = device, layout = "contiguous"}
    for _, call in ipairs(sample.calls) do
      local args = samples.build(op, call, options)
      samples.run(op, args)
    end
  end)
  if word then
    assert(word == "native" or word == "composed", "the word is " .. tostring(word))
    assert(reason == nil, "a reason beside a yes")
    assert(ok, ("said %s, but: %s"):format(word, tostring(err)))
    totals[word] = totals[word] + 1
  else
    assert(type(reason) == "string" and #reason > 0, "no reason")
    assert(not ok, "said no (" .. reason .. "), but the call worked")
    assert(type(err) == "table" and refusals[err.code], "refused by another error: " .. tostring(err))
    assert(err.op == op, ("the error names %s"):format(tostring(err.op)))
    totals.none = totals.none + 1
  end
end

describe("ag.supports", function()
  it("agrees with what every op does on every device in every dtype", function()
    local check = cases.begin()
    for _, op in ipairs(core.op_names()) do
      local sample = samples.load(op)
      for _, device in ipairs(sample and ag.devices() or {}) do
        for _, dtype in ipairs(approx.dtypes) do
          check(("%s %s on %s"):format(op, dtype, device), check_support, op, sample, dtype, device)
        end
      end
    end
    check.done()
    assert.is_true(totals.native > 0 and totals.composed > 0 and totals.none > 0)
    print(("conformance, capabilities: %d native, %d composed, %d refused"):format(totals.native, totals.composed, totals.none))
  end)

  it("answers for a tensor as for its dtype and device", function()
    local t = ag.zeros(2, {dtype = "bool"})
    assert.is_false((t:supports "add"))
    assert.are.equal("native", (ag.zeros(2):supports "add"))
    assert.are.equal("composed", (ag.zeros(2):to("reference"):supports "softmax"))
  end)

  it("refuses unknown ops, dtypes and devices", function()
    for _, query in ipairs {{op = "frobnicate"}, {op = "add", dtype = "f8"}, {op = "add", device = "moon"}, {}} do
      assert.is_false((pcall(ag.supports, query)))
    end
  end)

  it("decompositions run where a device has no kernel: the same values as the kernels of cpu", function()
    local x = ag.tensor {{1, 2, 3}, {3, 1, 2}}
    assert.are.equal("native", (ag.supports {op = "softmax", device = "cpu"}))
    assert.are.equal("composed", (ag.supports {op = "softmax", device = "reference"}))
    approx.check(x:softmax(), x:to("reference"):softmax():to("cpu"))
  end)
end)
