-- For JobSubmitPlugins=lua: refuses at submission, also to sbatch, a class that the partition or the QOS does
-- not allow, which the SPANK plugin would refuse only when the job starts. The file belongs in the folder of
-- slurm.conf, and repeats the limits of plugstack.conf. It only helps users; the plugin enforces the limits.
local max = {general = "normal", partition = {prod = "latency"}, qos = {}}

local rank = {latency = 1, normal = 2, batch = 3}

local function class_of(job)
   for i = 0, (job.spank_job_env_size or 0) - 1 do
      local class = string.match(job.spank_job_env[i] or "", "^_SLURM_SPANK_OPTION_cede_gpu_class=(.*)$")
      if class then return class end
   end
end

local function default_partition(partitions)
   for name, partition in pairs(partitions) do
      if partition.flag_default == 1 then return name end
   end
   return ""
end

function slurm_job_submit(job, partitions, uid)
   local class = class_of(job)
   if not rank[class or ""] then return slurm.SUCCESS end
   for partition in string.gmatch(job.partition or default_partition(partitions), "[^,]+") do
      local most = max.qos[job.qos or ""] or max.partition[partition] or max.general
      if rank[class] < rank[most] then
         slurm.log_user("cede: --gpu-class=" .. class .. " is not allowed in partition " .. partition ..
                        ": at most " .. most .. " is")
         return slurm.ERROR
      end
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end

return slurm.SUCCESS
