-- The site's job_submit.lua: it requires a time limit, and writes the user's account into the comment.
local allowed = {research = true}

function slurm_job_submit(job, partitions, uid)
  if job.time_limit == slurm.NO_VAL then
    slurm.log_user("give a time limit: --time=1:00:00")
    return slurm.ERROR
  end
  job.comment = "site"
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS