-- Every op on every device, dtype and layout: the results of each device against those of the reference device, and against
-- results worked out by hand where the sample has them.
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local cases = require "support.cases"
local samples = require "support.samples"

local totals = {}
for _, device in ipairs(ag.devices()) do totals[device] = {cases = 0, dtype = {}, layout = {}} end

local function count(device, dtype, layout)
  local total = totals[device]
  total.cases = total.cases + 1
  total.dtype[dtype] = (total.dtype[dtype] or 0) + 1
  total.layout[layout] = (total.layout[layout] or 0) + 1
end

-- Runs one call on one device. Returns results, then the inputs that the call changed, in one list.
local function results_on(op, sample, call, options)
  local args, inputs = samples.build(op, call, options)
  local results = samples.run(op, args)
  for _, name in ipairs(sample.mutates or {}) do
    for _, input in ipairs(inputs) do
      if input.name == name then results[#results + 1] = input.view(input.base) end
    end
  end
  return results
end

local function compare(sample, actual, expected)
  if #actual ~= #expected then error(("got %d results, expected %d"):format(#actual, #expected), 0) end
  for i, t in ipairs(actual) do
    if sample.arbitrary then
      local got, wanted = approx.shape_text(t), approx.shape_text(expected[i])
      if got ~= wanted then error(("got %s, expected %s"):format(got, wanted), 0) end
    else
      local ok, err = pcall(approx.check, t, expected[i], sample)
      if not ok then error(("result %d: %s"):format(i, err), 0) end
    end
  end
end

local function check_call(op, sample, call, dtype, layout)
  local expected = results_on(op, sample, call, {dtype = dtype, device = "reference", layout = layout})
  count("reference", dtype, layout)
  for _, device in ipairs(ag.devices()) do
    if device ~= "reference" then
      compare(sample, results_on(op, sample, call, {dtype = dtype, device = device, layout = layout}), expected)
      count(device, dtype, layout)
    end
  end
end

-- A result by hand becomes a tensor of the dtype that came.
local function as_tensor(value, like)
  local kind = approx.kinds[like.dtype]
  local t = ag.tensor(value, {dtype = kind == "bool" and "bool" or kind == "int" and "i64" or "f64"})
  return t:reshape(like:shape()):to(like.dtype):to(like.device)
end

local function check_by_hand(op, sample, case, dtype, device)
  local info, args = core.op_info(op), {}
  for _, param in ipairs(info.params) do
    local value = case[1][param.name]
    local gen = sample.gen[param.name] or {}
    local own = (case.dtypes or {})[param.name] or param.type == "bool" and "bool" or param.type == "index" and "i64"
      or gen.dtype or dtype
    local function tensor(v) return ag.tensor(v, {dtype = own}):to(device) end
    if param.type == "any[]" then
      args[param.name] = {}
      for i, v in ipairs(value) do args[param.name][i] = tensor(v) end
    elseif value ~= nil and (({any = 1, num = 1, float = 1, bool = 1, bits = 1, index = 1})[param.type]) then
      args[param.name] = tensor(value)
    elseif param.type == "device" then
      args.device = device
    else
      args[param.name] = value
    end
  end
  if samples.has_dtype_attr(info) and args.dtype == nil then args.dtype = dtype end
  local results = samples.run(op, args)
  for i = 2, #case do
    local expected = as_tensor(case[i], results[i - 1])
    approx.check(results[i - 1], expected, {ulps = sample.ulps, magnitude = sample.magnitude})
    count(device, dtype, "by hand")
  end
end

-- Values by hand hold for floats; those of int kind also for ints.
local function dtypes_by_hand(op, device)
  for _, dtype in ipairs {"f64", "i64", "bool"} do
    if core.supports(op, dtype, device) then return dtype end
  end
end

describe("op", function()
  for _, op in ipairs(core.op_names()) do
    it(op .. " gives the same on every device, dtype and layout", function()
      local check = cases.begin()
      local sample = samples.load(op)
      if not sample then error("no sample: spec/ops/" .. op .. ".lua is missing") end
      for _, dtype in ipairs(approx.dtypes) do
        for _, layout in ipairs(samples.layouts) do
          local skip = not core.supports(op, dtype, "reference") or (layout == "special" and approx.kinds[dtype] ~= "float")
          for i, call in ipairs(skip and {} or samples.calls(sample, layout)) do
            check(("%s %s %s call %d"):format(op, dtype, layout, i), check_call, op, sample, call, dtype, layout)
          end
        end
      end
      for _, device in ipairs(ag.devices()) do
        for i, case in ipairs(sample.expect or {}) do
          check(("%s by hand %d on %s"):format(op, i, device), check_by_hand, op, sample, case,
            case.dtype or dtypes_by_hand(op, device), device)
        end
      end
      check.done()
    end)
  end

  it("of attributes that make no sense are refused with one code on every device", function()
    local check, inf = cases.begin(), math.huge
    local calls = {
      {"argument", function(x) return x:roll({1, 2}, {1}) end}, {"argument", function(x) return x:roll({}) end},
      {"value", function(x) return x:to("i32"):index_add(1, x:to("i64"), x:to("i32"), 0.5) end},
      {"value", function(x) return x:to("i32"):index_add(1, x:to("i64"), x:to("i32"), inf) end},
      {"value", function(x) return ag.linspace(-inf, 1, 5, {device = x.device}) end},
      {"value", function(x) return x:sum():topk(0, 1) end},
    }
    for _, device in ipairs(ag.devices()) do
      for i, call in ipairs(calls) do
        check(("call %d on %s"):format(i, device), function()
          local ok, err = pcall(call[2], ag.tensor({1, 2, 3}):to(device))
          assert(not ok and err.code == call[1], tostring(err))
        end)
      end
    end
    check.done()
  end)

  it("of cross_entropy are NaN where the logits are no distribution, as those of log_softmax", function()
    for _, device in ipairs(ag.devices()) do
      local x = ag.tensor({{1, math.huge}, {-math.huge, -math.huge}, {0, -math.huge}}):to(device)
      local loss = x:cross_entropy(ag.tensor({1, 1, 2}, {dtype = "i64"}):to(device), {reduction = "none"})
      assert.is_true(loss[1]:isnan():item() and loss[2]:isnan():item() and loss:get(3) == math.huge)
    end
  end)

  it("was checked on every device, in every dtype and layout", function()
    for device, total in pairs(totals) do
      local parts = {}
      for _, layout in ipairs(samples.layouts) do
        assert.is_true((total.layout[layout] or 0) > 0, device .. " " .. layout)
        parts[#parts + 1] = layout .. " " .. total.layout[layout]
      end
      parts[#parts + 1] = "by hand " .. (total.layout["by hand"] or 0)
      for _, dtype in ipairs(approx.dtypes) do
        assert.is_true((total.dtype[dtype] or 0) > 0, device .. " " .. dtype)
        parts[#parts + 1] = dtype .. " " .. total.dtype[dtype]
      end
      print(("conformance, values on %s: %d cases: %s"):format(device, total.cases, table.concat(parts, ", ")))
    end
  end)
end)
