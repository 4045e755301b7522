-- Gradients of every differentiable op: against central differences in f64 on every device and layout, second derivatives of
-- the smooth ones, and backward kernels against the same gradient made of ops, in every float dtype.
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local cases = require "support.cases"
local gradcheck = require "support.gradcheck"
local samples = require "support.samples"

local totals = {}
for _, device in ipairs(ag.devices()) do totals[device] = {first = 0, second = 0, kernels = 0} end

local layouts = {"contiguous", "transposed", "broadcast", "empty", "0-d"}

-- The calls of a layout that differences can be taken of. With equal values along a broadcast dim some functions have a kink
-- (ties, zero spread).
local function calls_with_differences(sample, layout)
  local calls = {}
  for _, call in ipairs(layout == "broadcast" and sample.tied == false and {} or samples.calls(sample, layout)) do
    if call.gradient ~= false and call.gradient ~= "agree" then calls[#calls + 1] = call end
  end
  return calls
end

local function differentiable(op)
  local sample = samples.load(op)
  return sample and core.op_info(op).differentiable and sample.grads ~= false and sample
end

local function first_order(op, call, device, layout)
  if gradcheck.first_order(op, call, {device = device, layout = layout}) > 0 then
    totals[device].first = totals[device].first + 1
  end
end

local function second_order(op, call, device, layout)
  if gradcheck.second_order(op, call, {device = device, layout = layout}) > 0 then
    totals[device].second = totals[device].second + 1
  end
end

-- Rounding of the inputs themselves to the dtype is part of the difference, hence more than a few eps.
local ulps = {f32 = 128, f16 = 32, bf16 = 32}

local function kernels_agree(op, call, dtype, device, layout)
  gradcheck.agree(op, call, {dtype = dtype, device = device, layout = layout, ulps = ulps[dtype]})
  totals[device].kernels = totals[device].kernels + 1
end

-- NaN where NaN, Inf where Inf: between kernels on cpu, the same by ops, and the reference.
local function special_values_agree(op, call, dtype)
  local function run(device, create_graph)
    return (gradcheck.gradients(op, call, {dtype = dtype, device = device, layout = "special", create_graph = create_graph}))
  end
  local expected = run("reference", false)
  for way, grads in pairs {kernels = run("cpu", false), ops = run("cpu", true)} do
    for i, g in pairs(expected) do
      local ok, err = pcall(approx.check, grads[i]:detach(), g:to("cpu"), {ulps = 64, magnitude = 4})
      if not ok then error(("gradient %d by %s: %s"):format(i, way, err), 0) end
    end
  end
end

-- Gradients at {0, 1, 1, -1}: ties share, kinks have their documented side, zeros stay finite.
local known_points = {
  amax = {function(t) return t:amax() end, {0, 0.5, 0.5, 0}},
  amin = {function(t) return t:amin() end, {0, 0, 0, 1}},
  max_dim = {function(t) return (t:max_dim(1)) end, {0, 1, 0, 0}},
  maximum = {function(t) return t:maximum(1):sum() end, {0, 0.5, 0.5, 0}},
  relu = {function(t) return t:relu():sum() end, {0, 1, 1, 0}},
  abs = {function(t) return t:abs():sum() end, {0, 1, 1, -1}},
  clamp = {function(t) return t:clamp(0, 1):sum() end, {1, 1, 1, 0}},
  sign = {function(t) return t:sign():sum() end, {0, 0, 0, 0}},
  sqrt = {function(t) return t:narrow(1, 2, 2):sqrt():sum() end, {0, 0.5, 0.5, 0}},
  ["norm of zeros"] = {function(t) return (t * 0):norm() end, {0, 0, 0, 0}},
  ["power 2"] = {function(t) return (t ^ 2):sum() end, {0, 2, 2, -2}},
  ["power 0"] = {function(t) return (t ^ 0):sum() end, {0, 0, 0, 0}},
  ["prod with one 0"] = {function(t) return t:prod() end, {-1, 0, 0, 0}},
  ["prod with zeros"] = {function(t) return (t * t:detach():ne(1)):prod() end, {0, 0, 0, 0}},
  ["cumprod with a 0"] = {function(t) return t:cumprod(1):sum() end, {2, 0, 0, 0}},
  ["relu times Inf where it is flat"] = {
    function(t) return (t:relu() * ag.tensor({1 / 0, 1, 1, 1 / 0}, {dtype = "f64"}):to(t.device)):sum() end, {0, 1, 1, 0},
  },
}

local function each_call(op, sample, fn)
  local check = cases.begin()
  for _, device in ipairs(ag.devices()) do
    for _, layout in ipairs(layouts) do
      for i, call in ipairs(calls_with_differences(sample, layout)) do
        check(("%s on %s %s call %d"):format(op, device, layout, i), fn, op, call, device, layout)
      end
    end
  end
  check.done()
end

describe("gradient of", function()
  for _, op in ipairs(core.op_names()) do
    local sample = differentiable(op)
    if sample then
      it(op .. " agrees with finite differences", function()
        each_call(op, sample, first_order)
        if sample.smooth then each_call(op, sample, second_order) end
      end)

      it(op .. " is the same by kernels and by ops, in each float dtype", function()
        local check = cases.begin()
        for dtype in pairs(ulps) do
          for i, call in ipairs(samples.calls(sample, "contiguous")) do
            if call.gradient ~= false then
              check(("%s %s call %d"):format(op, dtype, i), kernels_agree, op, call, dtype, "cpu", "contiguous")
            end
          end
        end
        if sample.large then check(op .. " f32 large", kernels_agree, op, sample.large, "f32", "cpu", "contiguous") end
        check.done()
      end)
    end
  end

  it("every op at NaN, Inf and zero is the same on every device, by kernels and by ops", function()
    local check = cases.begin()
    for _, op in ipairs(core.op_names()) do
      local sample = differentiable(op)
      for _, dtype in ipairs(sample and {"f64", "f32"} or {}) do
        for i, call in ipairs(samples.calls(sample, "special")) do
          if call.gradient ~= false and core.supports(op, dtype, "cpu") then
            check(("%s %s call %d"):format(op, dtype, i), special_values_agree, op, call, dtype)
          end
        end
      end
    end
    check.done()
  end)

  it("a leaf with scattered strides has that leaf's layout of values", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      for _, view in ipairs {
        function(t) return t:transpose() end, function(t) return t:slice(1, 1, nil, 2) end,
        function(t) return t:narrow(2, 2, 2) end, function(t) return t:select(1, 2) end,
      } do
        check("on " .. device, function()
          local whole = ag.arange(1, 21, {dtype = "f64", device = device}):reshape(4, 5)
          local leaf = view(whole):detach()
          leaf.requires_grad = true
          (leaf * leaf * leaf):sum():backward()
          approx.check(leaf.grad, view(whole):square() * 3)
          local first = ag.grad((leaf * leaf * leaf):sum(), {leaf}, {create_graph = true})[1]
          approx.check(ag.grad(first:sum(), {leaf})[1], view(whole) * 6)
        end)
      end
    end
    check.done()
  end)

  it("known points is what is documented", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      for name, case in pairs(known_points) do
        for _, create_graph in ipairs {false, true} do
          check(("%s on %s"):format(name, device), function()
            local t = ag.tensor({0, 1, 1, -1}, {dtype = "f64"}):to(device)
            t.requires_grad = true
            local grad = ag.grad(case[1](t), {t}, {create_graph = create_graph})[1]
            approx.check(grad:detach():to("cpu"), ag.tensor(case[2], {dtype = "f64"}))
          end)
        end
      end
    end
    check.done()
  end)

  -- What has no gradient says so or leaves the result untracked.
  it("ops without one is refused or leaves the result untracked", function()
    local check = cases.begin()
    for _, op in ipairs(core.op_names()) do
      local sample, info = samples.load(op), core.op_info(op)
      if sample and not info.differentiable and core.supports(op, "f32", "cpu") then
        check(op, function()
          local args, inputs = samples.build(op, sample.calls[1], {dtype = "f32", device = "cpu", layout = "contiguous"})
          for _, input in ipairs(inputs) do
            if input.dtype == "f32" then input.base.requires_grad = true end
          end
          local ok, result = pcall(samples.run, op, args)
          if not ok then
            assert(result.code == "autodiff", tostring(result))
            return
          end
          for _, t in ipairs(result) do assert(not t.requires_grad, "a tracked result without a gradient rule") end
        end)
      end
    end
    check.done()
  end)

  it("every differentiable op was checked on every device", function()
    for device, total in pairs(totals) do
      assert.is_true(total.first > 0 and total.second > 0)
      print(("conformance, gradients on %s: %d calls against differences, %d second order, %d kernels against ops"):format(
        device, total.first, total.second, total.kernels))
    end
  end)
end)
