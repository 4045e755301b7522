-- Large inputs, so that vector and parallel paths run: every op on about 100,000 elements against the reference device, and
-- bit for bit the same with one, two and three threads.
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local cases = require "support.cases"
local samples = require "support.samples"

local thread_counts = {1, 2, 3}
local before = ag.get_num_threads()

local function build(op, sample, device, options)
  return (samples.build(op, sample.large, {dtype = options.dtype, device = device, layout = options.layout}))
end

local function same_bits(op, args)
  local results
  for _, count in ipairs(thread_counts) do
    ag.set_num_threads(count)
    local now = samples.run(op, args)
    for i, t in ipairs(results and now or {}) do
      local ok, err = pcall(approx.check_bitwise, t, results[i])
      if not ok then error(("result %d, %d threads: %s"):format(i, count, err), 0) end
    end
    results = results or now
  end
  ag.set_num_threads(before)
  return results
end

local function check_large(op, sample, options)
  local results = same_bits(op, build(op, sample, "cpu", options))
  -- Sums of many terms in another order: their rounding grows with the square root of the count.
  local tolerance = {ulps = 16 * (sample.ulps or 8), magnitude = sample.large_magnitude or sample.magnitude}
  for i, expected in ipairs(samples.run(op, build(op, sample, "reference", options))) do
    local ok, err = pcall(approx.check, results[i], expected, tolerance)
    if not ok then error(("result %d: %s"):format(i, err), 0) end
  end
end

-- Rarer dtypes and layouts take the same paths; what they do at small sizes is in values_spec.
local variants = {
  {dtype = "f32", layout = "contiguous"}, {dtype = "f32", layout = "transposed"}, {dtype = "f64", layout = "contiguous"},
  {dtype = "f16", layout = "contiguous"}, {dtype = "i32", layout = "contiguous"}, {dtype = "u8", layout = "transposed"},
}

describe("large inputs", function()
  for _, options in ipairs(variants) do
    local name = options.dtype .. " " .. options.layout
    it("give the reference's values in " .. name .. ", and the same bits for any number of threads", function()
      local check, count = cases.begin(), 0
      for _, op in ipairs(core.op_names()) do
        local sample = samples.load(op)
        if sample and sample.large and core.supports(op, options.dtype, "cpu") then
          check(("%s %s"):format(op, name), check_large, op, sample, options)
          count = count + 1
        end
      end
      check.done()
      print(("conformance, large: %d ops, %s"):format(count, name))
    end)
  end

  it("give the same gradients for any number of threads", function()
    local check = cases.begin()
    local gradcheck = require "support.gradcheck"
    for _, op in ipairs(core.op_names()) do
      local sample = samples.load(op)
      if sample and sample.large and sample.grads ~= false and core.op_info(op).differentiable then
        check(op, function()
          local first
          for _, count in ipairs(thread_counts) do
            ag.set_num_threads(count)
            local grads = gradcheck.gradients(op, sample.large, {dtype = "f32", device = "cpu", layout = "contiguous"})
            for i, g in pairs(first and grads or {}) do approx.check_bitwise(g, first[i]) end
            first = first or grads
          end
          ag.set_num_threads(before)
        end)
      end
    end
    check.done()
  end)

  it("leave the number of threads as it was", function() assert.are.equal(before, ag.get_num_threads()) end)
end)
